"""Reading plotted values back."""


def artists(figures, prefix):
    """gid after the prefix -> artist, over all figures."""
    found = {}
    for figure in figures.values():
        for artist in figure.findobj(lambda a: str(a.get_gid() or "").startswith(prefix + "/")):
            found[artist.get_gid().split("/", 1)[1]] = artist
    return found
