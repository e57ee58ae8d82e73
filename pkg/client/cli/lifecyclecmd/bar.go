package lifecyclecmd

import (
	"fmt"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/client/printable"
	account "github.com/virtkit/virtkit/pkg/report/progress"
)

// barWidth is how many columns the bar itself has.
const barWidth = 20

// bar returns a line that shows how far a migration is, without wrapping in width columns.
func bar(name string, p *account.Progress, width int) string {
	full := barWidth * p.Percent() / 100
	line := []rune(fmt.Sprintf("%s [%s%s] %s", printable.Line(name), strings.Repeat("=", full),
		strings.Repeat(" ", barWidth-full), migrate.Summary(p)))
	if width <= 1 {
		width = 80
	}
	if len(line) >= width {
		line = line[:width-1]
	}
	return string(line)
}
