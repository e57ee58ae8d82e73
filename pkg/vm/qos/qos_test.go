package qos

import (
	"strings"
	"testing"
)

func TestParseDisk(t *testing.T) {
	for text, want := range map[string]Disk{
		"iops=500,bps=50Mi":                         {IOPS: 500, BPS: 50 << 20},
		" write-bps = 20M , read-bps = 100Mi ":      {ReadBPS: 100 << 20, WriteBPS: 20_000_000},
		"read-iops=2k,write-iops=1,bps=4Ki":         {ReadIOPS: 2000, WriteIOPS: 1, BPS: 4096},
		"bps=1P":                                    {BPS: MaxRate},
		"read-bps=0.5Gi":                            {ReadBPS: 512 << 20},
		"read-iops=1,write-iops=2,write-bps=1.5Mi":  {ReadIOPS: 1, WriteIOPS: 2, WriteBPS: 3 << 19},
		"bps=52428800":                              {BPS: 50 << 20},
		"iops=1,read-bps=4096,write-bps=4097":       {IOPS: 1, ReadBPS: 4096, WriteBPS: 4097},
		"write-iops=7":                              {WriteIOPS: 7},
		"iops=1000000000000000,bps=999999999999999": {IOPS: MaxRate, BPS: MaxRate - 1},
	} {
		got, err := ParseDisk(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseInterface(t *testing.T) {
	got, err := ParseInterface("out=1Gi,in=10Mi")
	if want := (Interface{In: 10 << 20, Out: 1 << 30}); err != nil || got != want || got.String() != "in=10Mi,out=1Gi" {
		t.Errorf("%+v, %v, %q", got, err, got)
	}
}

// Each refusal says what is wrong and what fixes it.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "says no limit; give some, such as iops=500,bps=50Mi, or leave it out",
		"  ":                     "says no limit; give some, such as iops=500,bps=50Mi, or leave it out",
		"500":                    `"500" is no KEY=RATE; give limits such as iops=500,bps=50Mi`,
		"iops=500,":              `"" is no KEY=RATE; give limits such as iops=500,bps=50Mi`,
		"IOPS=500":               `"IOPS" is no limit; use iops, read-iops, write-iops, bps, read-bps or write-bps`,
		"iops=500,iops=500":      "iops is given twice; give it once",
		"iops=many":              `iops: "many" is no number of requests a second, such as 500`,
		"iops=0":                 "iops: 0 is no limit: a guest needs some; leave it out for no limit",
		"iops=-1":                "iops: -1 is no limit: a guest needs some; leave it out for no limit",
		"iops=1.5":               "iops: 1.5 is no whole number of requests a second; use one, such as 500",
		"iops=500m":              "iops: 500m is no whole number of requests a second; use one, such as 500",
		"bps=":                   `bps: "" is no number of bytes a second, such as 50Mi`,
		"bps=50":                 "bps: 50 is less than 4Ki a second; give bytes with their unit, such as 50Mi",
		"bps=1e40":               "bps: 1e40 is more than can be limited; leave it out for no limit",
		"bps=50Mi,read-bps=1Mi":  "bps bounds reads and writes together; give it, or read-bps and write-bps",
		"iops=50,write-iops=1":   "iops bounds reads and writes together; give it, or read-iops and write-iops",
		strings.Repeat("x", 257): "is longer than 256 bytes; give limits such as iops=500,bps=50Mi",
	} {
		if d, err := ParseDisk(text); err == nil || err.Error() != want || d != (Disk{}) {
			t.Errorf("%q: %+v, %v; want %s", text, d, err, want)
		}
	}
	const want = `"bps" is no limit; use in or out`
	if i, err := ParseInterface("bps=50Mi"); err == nil || err.Error() != want || i != (Interface{}) {
		t.Errorf("%+v, %v; want %s", i, err, want)
	}
}

// FuzzParse reads annotations that users write: what is admitted is within bounds and reads back as it is written.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"iops=500,bps=50Mi", "read-iops=1,write-iops=2", "in=1Gi,out=4096", "bps=1.5Mi", "bps=1e9", "in=,", "iops==",
		"bps=1n", "bps=9999999999999999999999E", "read-bps=0x10", "iops=\x00", "in=10Mi,in=10Mi", ",", "=",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := ParseDisk(text); err == nil {
			again, err := ParseDisk(d.String())
			if err != nil || again != d || d == (Disk{}) {
				t.Errorf("%q is %+v, %q, and that %+v, %v", text, d, d, again, err)
			}
			check(t, text, d.limits())
		}
		if i, err := ParseInterface(text); err == nil {
			again, err := ParseInterface(i.String())
			if err != nil || again != i || i == (Interface{}) {
				t.Errorf("%q is %+v, %q, and that %+v, %v", text, i, i, again, err)
			}
			check(t, text, i.limits())
		}
	})
}

func check(t *testing.T, text string, limits []limit) {
	t.Helper()
	for _, l := range limits {
		if n := *l.value; n > MaxRate || l.bytes && n > 0 && n < MinRate {
			t.Errorf("%q: %s is %d", text, l.key, n)
		}
	}
}
