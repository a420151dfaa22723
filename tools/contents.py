"""How JupyterLab reads notebooks, started by tools/lab.py.

A button or slider stored in a notebook lives as long as its kernel. After that,
JupyterLab shows "Error displaying widget: model not found" in place of the picture or
text stored with it. So a notebook without a kernel is read without them. Its file stays
as it is until the reader saves.
"""

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

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


def drop_widgets(nb):
    """Take the widgets out of outputs that have something else to show."""
    for cell in nb["cells"]:
        for output in cell.get("outputs", []):
            if len(output.get("data", {})) > 1:
                output["data"].pop(WIDGET_VIEW, None)
