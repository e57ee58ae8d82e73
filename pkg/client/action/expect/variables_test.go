package expect

import (
	"errors"
	"strings"
	"testing"
)

// A variable that can have no value is found before anything is sent, and one that may have one is not refused.
func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		line   int
		says   string
	}{
		"given":              {`send "$user\r"`, 0, ""},
		"missing":            {"send \"a\"\nprint \"$PASSWORD\"", 2, "variable $PASSWORD has no value; give it"},
		"set before":         {"set a \"1\"\nsend \"$a\"", 0, ""},
		"set after":          {"send \"$a\"\nset a \"1\"", 1, "variable $a has no value"},
		"set by itself":      {`set a "$a"`, 1, "variable $a has no value"},
		"named group":        {"expect /(?P<kernel>x)/\nprint \"$kernel $1\"", 0, ""},
		"no such group":      {"expect /(x)/\nprint \"$2\"", 2, "$2 has no value: no expect has had such a group"},
		"whole match":        {"expect /x/\nprint \"${0}\"", 2, "$0 has no value"},
		"handler's group":    {`on /(x)/ do print "$1"`, 0, ""},
		"handler, set later": {"on /x/ do send \"$a\"\nset a \"1\"", 0, ""},
		"handler sets":       {"on /x/ do set a \"1\"\nexpect \"y\"\nprint \"$a\"", 0, ""},
		"handler, missing":   {"send \"a\"\non /x/ do send \"$a\"", 2, "variable $a has no value"},
		"secret":             {`send-secret "$PASSWORD"`, 1, "variable $PASSWORD has no value"},
		"a dollar":           {`send "\$PASSWORD" # and '$b'`, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			script, err := Parse("a.exp", strings.NewReader(tc.script))
			if err != nil {
				t.Fatal(err)
			}
			given := map[string]string{"user": ""}
			err = script.Check(given)
			var bad *ParseError
			switch {
			case tc.says == "" && err == nil && len(given) == 1:
			case tc.says != "" && errors.As(err, &bad) && bad.File == "a.exp" && bad.Line == tc.line &&
				strings.HasPrefix(bad.Err.Error(), tc.says):
			default:
				t.Errorf("%v, want %d: %s", err, tc.line, tc.says)
			}
		})
	}
}
