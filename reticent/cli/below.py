"""Commands that are one themselves and have others below them.

``reticent detect SOURCE`` is a command of its own, so a first word that names one of those below goes to it; a file of
that name is ``./sample``.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand

from reticent.cli.paragraphs import unwrap_help

__all__ = ["CommandWithOthers", "below"]


def below() -> typer.Typer:
    """Return the place of the commands below another; it needs two of them at least."""
    return typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode="rich")


class CommandWithOthers(TyperCommand):
    """A command with commands below it."""

    app: ClassVar[typer.Typer]

    @cached_property
    def commands(self) -> dict[str, Any]:
        group: Any = typer.main.get_command(unwrap_help(self.app))
        return dict(group.commands)

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if args and args[0] in self.commands:
            return self.commands[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)
