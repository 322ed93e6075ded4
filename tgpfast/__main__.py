"""``python -m tgpfast`` is the command ``tgpfast``."""

from .cli.command_line import main

raise SystemExit(main())
