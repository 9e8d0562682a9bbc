"""What matplotlib itself says of where texts are: nothing may lie over something else, or outside of the figure."""

from itertools import combinations

from matplotlib.text import Text

SLACK_PIXELS = 1.0  # a box holds the room of letters that hang below the line


def visible_texts(figure):
    """(text, its box in pixels) of everything that is drawn: labels of ticks outside of an axis' limits are not."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    hidden = set()
    for axes in figure.axes:
        for axis, ends in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not ends[0] <= tick.get_loc() <= ends[1]:
                    hidden |= {tick.label1, tick.label2}
    found = []
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text not in hidden:
            box = text.get_window_extent(renderer)
            if box.width > 0:
                found.append((text.get_text(), box))
    return found


def complaints(figure):
    """What a reader could not read."""
    texts = visible_texts(figure)
    outer = figure.bbox
    found = [
        f"{words!r} leaves the figure"
        for words, box in texts
        if box.x0 < outer.x0 - SLACK_PIXELS
        or box.y0 < outer.y0 - SLACK_PIXELS
        or box.x1 > outer.x1 + SLACK_PIXELS
        or box.y1 > outer.y1 + SLACK_PIXELS
    ]
    for (words, a), (others, b) in combinations(texts, 2):
        width = min(a.x1, b.x1) - max(a.x0, b.x0)
        height = min(a.y1, b.y1) - max(a.y0, b.y0)
        if width > SLACK_PIXELS and height > SLACK_PIXELS:
            found.append(f"{words!r} lies over {others!r}")
    return found


def series_of_panels(figure):
    """By panel: the names of the lines that show a quantity of a series."""
    found = []
    for axes in figure.axes:
        gids = [str(line.get_gid() or "") for line in axes.lines]
        found.append({gid for gid in gids if gid.startswith(("rate/", "mfu/", "loss/", "predicted/"))})
    return found
