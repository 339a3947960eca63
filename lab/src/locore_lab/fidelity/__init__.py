"""How close samplers come to p(y | α), at what price."""
