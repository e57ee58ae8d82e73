package widget

import "github.com/virtkit/virtkit/pkg/client/tui/theme"

// Scrollbar draws a bar at the right of lines that are not all there are: height of total from offset. Where they are,
// nothing is added.
func Scrollbar(t *theme.Theme, lines []string, width, offset, height, total int) []string {
	if total <= height || height < 2 || width < 2 {
		return lines
	}
	length := max(1, height*height/total)
	top := (height - length) * offset / (total - height)
	out := make([]string, len(lines))
	for i, line := range lines {
		bar := t.Paint(theme.Border, t.Vertical)
		if i >= top && i < top+length {
			bar = t.Paint(theme.Dim, t.Thumb)
		}
		out[i] = pad(line, width-1, false, t.Ellipsis) + bar
	}
	return out
}
