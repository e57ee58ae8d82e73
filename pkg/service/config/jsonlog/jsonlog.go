// Package jsonlog makes the log lines of the services: a JSON object a line, with the keys that collectors of
// KubeVirt's logs know: component, level, msg, pos and timestamp; of lines that another program wrote, subcomponent,
// too.
package jsonlog

import (
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Keys of a line.
const (
	Component    = "component"
	Subcomponent = "subcomponent"
	Position     = "pos"
	timestamp    = "timestamp"
)

// timeFormat has microseconds and UTC.
const timeFormat = "2006-01-02T15:04:05.000000Z"

// New makes the log of a component.
func New(w io.Writer, component string, level slog.Leveler) *slog.Logger {
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{AddSource: true, Level: level, ReplaceAttr: replace})
	return slog.New(handler).With(Component, component)
}

// replace names and writes the values of a line as KubeVirt does. What is for debugging has level info: there is no
// other level below warning.
func replace(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
	if len(groups) > 0 {
		return a
	}
	switch value := a.Value.Any().(type) {
	case time.Time:
		if a.Key == slog.TimeKey {
			return slog.String(timestamp, value.UTC().Format(timeFormat))
		}
	case slog.Level:
		if a.Key == slog.LevelKey {
			return slog.String(slog.LevelKey, levelName(value))
		}
	case *slog.Source:
		if a.Key != slog.SourceKey {
			return a
		}
		if value == nil || value.File == "" {
			return slog.Attr{}
		}
		return slog.String(Position, filepath.Base(value.File)+":"+strconv.Itoa(value.Line))
	}
	return a
}

func levelName(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "error"
	case level >= slog.LevelWarn:
		return "warning"
	}
	return "info"
}

// LevelOf reads the name of a level as other programs write it; what is not known is information.
func LevelOf(name string) slog.Level {
	switch strings.ToLower(name) {
	case "error", "fatal":
		return slog.LevelError
	case "warning", "warn":
		return slog.LevelWarn
	case "debug":
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Install makes klog, and so all that logs by it, write the lines of a component. What is written klog decides by its
// own verbosity, which contextual logging would pass by.
func Install(w io.Writer, component string) {
	klog.SetLogger(logr.FromSlogHandler(New(w, component, lowest).Handler()))
}

// lowest is below every level of klog.
const lowest = slog.Level(-100)
