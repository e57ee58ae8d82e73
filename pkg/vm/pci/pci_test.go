package pci

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"0000:03:00.0": "0000:03:00.0", "0000:0A:1f.7": "0000:0a:1f.7", "abcd:00:00.0": "abcd:00:00.0",
		"": "", "03:00.0": "", "0000:81:01.10": "", "0000:03:20.0": "", "0000:03:00.8": "", "0000:03:00.0\n": "",
		"g000:03:00.0": "",
	} {
		got, err := Parse(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}
