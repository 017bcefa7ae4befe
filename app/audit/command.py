"""The work of `cupo audit`, up to its exit status."""

import typer

from app.audit.run import LOOKS, pages, rows_to_read
from app.audit.screen import Screen
from app.db import Database
from app.errors import Unavailable
from app.settings import Settings

NOTHING_FOUND, FOUND, COULD_NOT_LOOK, INTERRUPTED = 0, 1, 2, 130
# Nobody waits for a page as for an answer over HTTP: better late than given up.
PATIENCE_SECONDS = 60


def audit(settings: Settings, *, as_json: bool) -> int:
    """Look at everything and show what was found: the exit status."""
    patient = {"lock_budget_seconds": PATIENCE_SECONDS, "database_pool_size": 1}
    db = Database(settings.model_copy(update=patient))
    try:
        with Screen(rows_to_read(db), as_json=as_json) as screen:
            for look in LOOKS:
                for page in pages(db, settings, look):
                    screen.show(page)
    except Unavailable as unavailable:
        typer.echo(f"cupo: {unavailable.detail}", err=True)
        return COULD_NOT_LOOK
    except KeyboardInterrupt:
        typer.echo("cupo: Stopped before the end.", err=True)
        return INTERRUPTED
    finally:
        db.close()
    screen.show_summary()
    return FOUND if screen.has_failures else NOTHING_FOUND
