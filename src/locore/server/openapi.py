"""The published description: OpenAPI, with the JSON Schema of constraints, which is made from the forms that the code knows."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from locore.constraints import json_forms


def describe(app: FastAPI) -> None:
    """Make the application answer /openapi.json and /v1/constraint_schema."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, routes=app.routes, summary="Constrained sampling")
            forms = json_forms("#/components/schemas/")
            found["components"]["schemas"] |= forms
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/v1/constraint_schema")
    async def constraint_schema() -> dict[str, Any]:
        """The JSON Schema of the field `constraint`."""
        return published_schema()


def published_schema() -> dict[str, Any]:
    """The JSON Schema of a constraint as a document of its own."""
    forms = json_forms("#/$defs/")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/Constraint", "$defs": forms}
