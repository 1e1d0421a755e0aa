"""Paragraphs of the help on one line each: typer keeps the line breaks of a docstring, and terminals add theirs."""

from __future__ import annotations

import inspect

import typer

__all__ = ["unwrap_help"]


def unwrap_help(app: typer.Typer) -> typer.Typer:
    """Take the line breaks out of the paragraphs of an app's help, and of the commands and groups below it."""
    if isinstance(app.info.help, str):
        app.info.help = _unwrapped(app.info.help)
    for command in app.registered_commands:
        command.help = _unwrapped(command.help or inspect.getdoc(command.callback) or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            unwrap_help(group.typer_instance)
    return app


def _unwrapped(text: str) -> str:
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in inspect.cleandoc(text).split("\n\n"))
