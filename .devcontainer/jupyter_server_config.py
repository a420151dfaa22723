"""In a browser, Codespaces shows JupyterLab under an address of its own, from which it
would accept no kernel.
"""

import os

if "CODESPACE_NAME" in os.environ:
    address = "https://{CODESPACE_NAME}-8888.{GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN}"
    get_config().ServerApp.allow_origin = address.format_map(os.environ)  # noqa: F821
