// Says where the site stands. 404.html, which a server shows at any address, asks for this
// file in each folder above it: the deepest that has it is the site's.
window.siteRoot ??= new URL("..", document.currentScript.src).href;
