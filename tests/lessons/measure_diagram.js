// What is illegible in the diagram of a page: texts below 13 px or of little contrast,
// texts on another text, out of the frame or over the edge of their box, and shapes out
// of the frame. The box of a text is the smallest rectangle around its middle; its
// ground is what was drawn there last with a fill.
() => {
    const svg = document.querySelector("svg");
    const frame = svg.getBoundingClientRect();
    const found = [];
    const box = element => element.getBoundingClientRect();
    const style = element => getComputedStyle(element);
    const inside = (a, b) =>
        a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
    const covers = (a, x, y) =>
        a.left <= x && x <= a.right && a.top <= y && y <= a.bottom;
    const overlap = (a, b) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    const drawn = [...svg.querySelectorAll("rect, circle, ellipse, line, path, text")]
        .filter(element => !element.closest("defs"));
    const texts = drawn.filter(element => element.tagName === "text");
    // WCAG 2.2, "relative luminance"
    const luminance = color => {
        const [r, g, b] = color.match(/[\d.]+/g).slice(0, 3).map(value => value / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    for (const element of drawn) {
        const name = element.textContent || element.outerHTML.slice(0, 80);
        if (!inside(box(element), frame)) found.push(`out of the frame: ${name}`);
    }
    texts.forEach((text, index) => {
        const own = box(text), name = `'${text.textContent}'`;
        const x = (own.left + own.right) / 2, y = (own.top + own.bottom) / 2;
        const sizes = [text, ...text.children].map(part => parseFloat(style(part).fontSize));
        const size = Math.min(...sizes) * frame.width / svg.viewBox.baseVal.width;
        if (size < 13) found.push(`text of ${size} px: ${name}`);
        for (const other of texts.slice(index + 1)) {
            if (overlap(own, box(other)))
                found.push(`on each other: ${name} and '${other.textContent}'`);
        }
        const boxes = drawn.filter(element => element.tagName === "rect").map(box)
            .filter(rectangle => covers(rectangle, x, y))
            .sort((a, b) => a.width * a.height - b.width * b.height);
        const [around] = boxes;
        if (around && !(own.left >= around.left + 2 && own.right <= around.right - 2))
            found.push(`over the edge of its box: ${name}`);
        const ground = document.elementsFromPoint(x, y).find(element =>
            drawn.includes(element) && element !== text && style(element).fill !== "none");
        const shades = [text, ground].map(e => e ? luminance(style(e).fill) : 1);
        const contrast = (Math.max(...shades) + 0.05) / (Math.min(...shades) + 0.05);
        if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(1)}: ${name}`);
    });
    return found;
}
