"""How JupyterLab reads notebooks and ends their kernels, started by tools/lab.py.

A button or slider stored in a notebook lives as long as its kernel. After that,
JupyterLab shows "Error displaying widget: model not found" in place of the picture or
text stored with it. So a notebook without a kernel is read without them. Its file stays
as it is until the reader saves.

A kernel ends with its tab, and needs a moment for it. As long its session was still
there: a notebook opened again got it, and soon "No Kernel". So a session goes first.
"""

from jupyter_core.utils import ensure_async
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupyter_server.services.sessions.sessionmanager import SessionManager

# course.widgets has it, too; a server need not import PyTorch for it
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class Contents(AsyncLargeFileManager):
    """Files on the disk; notebooks without widgets that no kernel can show."""

    async def get(self, path, *args, **options):
        model = await super().get(path, *args, **options)
        if model["type"] == "notebook" and model["content"]:
            if not await self.has_kernel(path.strip("/")):
                drop_widgets(model["content"])
        return model

    async def has_kernel(self, path):
        """Whether the notebook has a kernel, other than one that is shutting down."""
        kernels = self.parent.kernel_manager
        return any(
            not kernels.get_kernel(session["kernel"]["id"]).shutting_down
            for session in await self.parent.session_manager.list_sessions()
            if session["path"] == path
        )


class Sessions(SessionManager):
    """Which notebook has which kernel; none has one that is about to end."""

    async def delete_session(self, session_id):
        session = await self.get_session(session_id=session_id)
        self.cursor.execute("DELETE FROM session WHERE session_id=?", (session_id,))
        await ensure_async(self.kernel_manager.shutdown_kernel(session["kernel"]["id"]))


def drop_widgets(nb):
    """Take the widgets out of outputs that have something else to show."""
    for cell in nb["cells"]:
        for output in cell.get("outputs", []):
            if len(output.get("data", {})) > 1:
                output["data"].pop(WIDGET_VIEW, None)
