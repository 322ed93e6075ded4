"""``python -m tgpfast`` is the command ``tgpfast``."""

from .cli import main

raise SystemExit(main())
