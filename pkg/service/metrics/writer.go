package metrics

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Writer writes the text format, version 0.0.4. Families are written one after the other, each once: Family, then its
// series. Only numbers and labels that change are made anew, so that a series costs no memory.
type Writer struct {
	out *bufio.Writer
	// of is the family that is written, begun whether its head has been.
	of    *Family
	begun bool
	// number is where values are made.
	number [32]byte
}

// NewWriter writes to out; Flush ends it.
func NewWriter(out io.Writer) *Writer {
	return &Writer{out: bufio.NewWriterSize(out, 64<<10)}
}

// Flush writes what is still buffered, and gives the first error of all.
func (w *Writer) Flush() error { return w.out.Flush() }

// Family begins the next family. One without series leaves no trace.
func (w *Writer) Family(f *Family) { w.of, w.begun = f, false }

// Fixed are labels that were made once for many series: a="b",c="d".
type Fixed string

// Labels makes Fixed of names and values. What is empty is left out, which Prometheus takes for the same.
func Labels(names []string, values ...string) Fixed {
	var b strings.Builder
	for i, value := range values {
		if value == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(names[i])
		b.WriteString(`="`)
		escape(&b, value)
		b.WriteByte('"')
	}
	return Fixed(b.String())
}

// And joins two; either may be empty.
func (f Fixed) And(more Fixed) Fixed {
	if f == "" || more == "" {
		return f + more
	}
	return f + "," + more
}

// Series writes one of the family: fixed labels first, then values of the family's last labels, as many as are given.
func (w *Writer) Series(value float64, fixed Fixed, values ...string) {
	if !w.begun {
		w.head()
		w.begun = true
	}
	w.text(w.of.Name)
	names := w.of.Labels[len(w.of.Labels)-len(values):]
	separator := "{"
	if fixed != "" {
		w.text(separator)
		w.text(string(fixed))
		separator = ","
	}
	for i, text := range values {
		if text == "" {
			continue
		}
		w.text(separator)
		w.text(names[i])
		w.text(`="`)
		escape(w.out, text)
		w.text(`"`)
		separator = ","
	}
	if separator == "," {
		w.text("}")
	}
	w.text(" ")
	// bufio keeps the first error, which Flush gives.
	_, _ = w.out.Write(strconv.AppendFloat(w.number[:0], value, 'g', -1, 64))
	w.text("\n")
}

func (w *Writer) head() {
	w.text("# HELP ")
	w.text(w.of.Name)
	w.text(" ")
	_, _ = helpEscapes.WriteString(w.out, w.of.Help)
	w.text("\n# TYPE ")
	w.text(w.of.Name)
	w.text(" ")
	w.text(string(w.of.Type))
	w.text("\n")
}

func (w *Writer) text(s string) { _, _ = w.out.WriteString(s) }

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// maxValue bounds a label's value in bytes: guests name their file systems and themselves.
const maxValue = 256

// escape writes a label's value, which guests may have made up.
func escape(to io.StringWriter, value string) {
	if len(value) > maxValue {
		value = value[:maxValue]
	}
	if !utf8.ValidString(value) {
		value = strings.ToValidUTF8(value, "\uFFFD")
	}
	if !strings.ContainsAny(value, "\\\n\"") {
		_, _ = to.WriteString(value)
		return
	}
	_, _ = to.WriteString(labelEscapes.Replace(value))
}

// Name makes a label's name of any text, as Prometheus' service discovery does: what is not a letter, a digit or an
// underscore becomes one.
func Name(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, text)
}
