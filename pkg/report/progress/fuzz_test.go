package progress

import (
	"strings"
	"testing"
	"time"
)

// FuzzParse reads an annotation that anybody may have written who may edit migrations.
func FuzzParse(f *testing.F) {
	f.Add((&Progress{
		Mode: "PreCopy", Time: time.Unix(1000000000, 0).UTC(), TotalBytes: 100, RemainingBytes: 50,
	}).String())
	f.Add("")
	f.Add("null")
	f.Add(`{"totalBytes":18446744073709551615,"remainingBytes":18446744073709551614,"bandwidthBytesPerSecond":1}`)
	f.Add(`{"mode":"PreCopy","iteration":9,"dirtyBytesPerSecond":18446744073709551615,"elapsedSeconds":1e308}`)
	f.Add(`{"mode":"\u001b[31m","time":"9999-12-31T23:59:59Z"}`)
	f.Add(strings.Repeat("[", maxText))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil || p == nil {
			if p != nil || (text == "") != (err == nil) {
				t.Errorf("%q: %v, %v", text, p, err)
			}
			return
		}
		if percent := p.Percent(); percent < 0 || percent > 100 {
			t.Errorf("%q: %d %%", text, percent)
		}
		if left, ends := p.Left(); left < 0 || !ends && left != 0 {
			t.Errorf("%q: left %v, %t", text, left, ends)
		}
		p.Converges()
		again := p.String()
		if len(again) > maxText {
			return // the text had escapes, or fewer keys
		}
		back, err := Parse(again)
		if again != "" && (err != nil || back.String() != again) {
			t.Errorf("%q is written %q and read %v, %v", text, again, back, err)
		}
	})
}
