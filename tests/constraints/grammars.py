"""Grammars for tests: usual ones, and those at the edges of what a lexer and a parser do together."""

from __future__ import annotations

ARITHMETIC = """
start: sum
sum: sum "+" product | sum "-" product | product
product: product "*" atom | atom
atom: NUMBER | "(" sum ")"
NUMBER: /[0-9]+/
%ignore " "
"""
DYCK = 'start: pairs\npairs: "(" pairs ")" pairs | "[" pairs "]" pairs |'
JSON = r"""
start: value
?value: object | array | STRING | NUMBER | "true" | "false" | "null"
object: "{" [pair ("," pair)*] "}"
pair: STRING ":" value
array: "[" [value ("," value)*] "]"
STRING: /"([^"\\\x00-\x1f]|\\["\\\/bfnrt]|\\u[0-9a-fA-F]{4})*"/
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
%import common.WS
%ignore WS
"""
SQL = r"""
start: "SELECT" " " columns " FROM " NAME [" WHERE " condition]
columns: "*" | NAME ("," NAME)*
condition: comparison ((" AND " | " OR ") comparison)*
comparison: NAME OPERATOR (NAME | NUMBER | STRING)
OPERATOR: "=" | "<" | ">" | "<=" | ">="
NAME: /[a-z_][a-z0-9_]*/
NUMBER: /[0-9]+/
STRING: /'[^']*'/
"""
EDGES = {
    "keywords": 'start: (KEY | NAME)+ ";"\nKEY: "if"\nNAME: /[a-z]+/\n%ignore " "',
    "no way back in the lexer": 'start: (A | B)+\nA: "a"\nB: "abc"',
    "what is ignored is also said": 'start: NAME (" " NAME)*\nNAME: /[a-z]+/\n%ignore " "',
    "empty terminals": 'start: A* B? C{2,4} D~1..2\nA: /b*/\nB: "x"\nC: "c"\nD: "d"',
    "left recursion": 'start: x x\nx: x "a" | "b"',
    "right recursion": 'start: x\nx: "a" x | "b"',
    "ambiguous": 'start: s\ns: s s | "a" | "(" s ")"',
    "empty rules": 'start: a b c\na: "a" |\nb: a a "b" |\nc: b b "c" | a',
    "recursive start": 'start: "(" start ")" |',
    "unit cycle": 'start: x\nx: y | "a"\ny: x',
    "a terminal that never ends": 'start: A B | "b"\nA: /a+/\nB: /a/',
    "terminals in common": 'start: A\nA: /[a-c]+/ & /[b-d]*/ | "zz"',
    "letters": 'start: "é".."ü" /./ /(?s:.)/ "straße"i /[^a\\s]\\d/',
    "comments": "%import common (C_COMMENT, CNAME, ESCAPED_STRING)\n%import common.SIGNED_NUMBER -> N\n"
    'start: (CNAME "=" (N | ESCAPED_STRING) ";")*\n%ignore C_COMMENT\n%ignore /[ \\n]/',
    "names and marks": '!?start: _item -> one // a comment\n  | _item "," start # another\n_item: ["x"] ("y" | "z")',
}
ALL = {"arithmetic": ARITHMETIC, "dyck": DYCK, "json": JSON, "sql": SQL} | EDGES
