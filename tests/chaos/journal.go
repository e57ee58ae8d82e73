package chaos

import (
	"bytes"
	_ "embed" // of journal.sh
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

//go:embed journal.sh
var journalScript string

// block is the size of a record on the disk. Record N is in block N; block 0 is empty.
const block = 512

// Record is one record of a guest's journal.
type Record struct {
	Guest  string
	Number int
	// Epoch counts the boots that have written to the disk, from 1 on; Boot is the boot's id.
	Epoch int
	Boot  string
	// Ran differs between copies of one guest: how long a process of it had run, in ns.
	Ran int64
}

// checksum is what journal.sh computes, too.
func (r Record) checksum() int64 {
	head, _, _ := strings.Cut(r.Boot, "-")
	first, err := strconv.ParseUint(head, 16, 32)
	if err != nil {
		return -1
	}
	return (int64(r.Number)*31337 + int64(r.Epoch)*104729 + int64(first)*7919 + r.Ran*613) % 1000003
}

// String is the record as the guest writes it.
func (r Record) String() string {
	return fmt.Sprintf("%s %d %d %s %d %d", r.Guest, r.Number, r.Epoch, r.Boot, r.Ran, r.checksum())
}

// ParseRecord reads a record, and says whether it is whole.
func ParseRecord(text string) (r Record, ok bool) {
	fields := strings.Fields(text)
	if len(fields) != 6 {
		return r, false
	}
	var errs [4]error
	var sum int64
	r.Guest, r.Boot = fields[0], fields[3]
	r.Number, errs[0] = strconv.Atoi(fields[1])
	r.Epoch, errs[1] = strconv.Atoi(fields[2])
	r.Ran, errs[2] = strconv.ParseInt(fields[4], 10, 64)
	sum, errs[3] = strconv.ParseInt(fields[5], 10, 64)
	return r, errors.Join(errs[:]...) == nil && sum == r.checksum()
}

var (
	acknowledgement = regexp.MustCompile(`journal: ([^\r\n]*)\r*\n`)
	refusal         = regexp.MustCompile(`^\S+ cannot write record \d+: .+$`)
)

// Acknowledged reads what guests have said on a serial console. It returns the records, complaints of guests that
// cannot write, and the rest, which may be the beginning of one more line. A line that something else has written into
// is none.
func Acknowledged(console []byte) (records []Record, complaints []string, rest []byte) {
	end := 0
	for _, m := range acknowledgement.FindAllSubmatchIndex(console, -1) {
		end = m[1]
		line := string(console[m[2]:m[3]])
		if r, ok := ParseRecord(line); ok {
			records = append(records, r)
		} else if refusal.MatchString(line) {
			complaints = append(complaints, line)
		}
	}
	rest = console[end:]
	if i := bytes.LastIndexByte(rest, '\n'); i >= 0 {
		rest = rest[i+1:]
	}
	return records, complaints, rest
}

// Journal is what a guest has acknowledged. Its zero value has only to be given the guest's name.
type Journal struct {
	Guest string
	// Last is the acknowledged record with the highest number, and At when it was seen first.
	Last Record
	At   time.Time

	acknowledged map[int]Record
	doubled      []string
	refused      []string
	found        map[string]bool
}

// Acknowledge takes a record that the guest has said to be on the disk. One may come several times.
func (j *Journal) Acknowledge(r Record, now time.Time) {
	if j.acknowledged == nil {
		j.acknowledged = map[int]Record{}
	}
	if was, ok := j.acknowledged[r.Number]; ok {
		if was != r {
			j.doubled = append(j.doubled, fmt.Sprintf("record %d was written twice: %q and %q", r.Number, was, r))
		}
		return
	}
	j.acknowledged[r.Number] = r
	if r.Number > j.Last.Number {
		j.Last, j.At = r, now
	}
}

// Refuse takes a complaint of a guest that cannot write.
func (j *Journal) Refuse(complaint string) { j.refused = append(j.refused, complaint) }

// Findings are what is wrong with a guest's disk.
type Findings struct {
	// Lost are acknowledged records that are not there, or not whole, and those that could not be written.
	Lost []string `json:"lost,omitempty"`
	// Doubled are signs of two guests on one disk.
	Doubled []string `json:"doubled,omitempty"`
}

// Check compares the disk with what was acknowledged before it was read, and returns what it has not returned before.
// The last record on the disk need not be whole: the guest may be writing it.
func (j *Journal) Check(disk io.Reader) (Findings, error) {
	var f Findings
	lost := func(format string, args ...any) { f.Lost = append(f.Lost, fmt.Sprintf(format, args...)) }
	doubled := func(format string, args ...any) { f.Doubled = append(f.Doubled, fmt.Sprintf(format, args...)) }
	f.Lost, f.Doubled = append(f.Lost, j.refused...), append(f.Doubled, j.doubled...)

	blocks, err := readBlocks(disk, j.Last.Number)
	if err != nil {
		return f, err
	}
	var previous Record
	for n := 1; n < len(blocks); n++ {
		said, wasSaid := j.acknowledged[n]
		text := string(bytes.TrimRight(blocks[n], "\x00"))
		r, whole := ParseRecord(text)
		switch {
		case text == "":
			lost("record %d is not on the disk", n)
			continue
		case !whole && n == len(blocks)-1 && n > j.Last.Number:
			continue
		case !whole:
			lost("record %d is damaged: %q", n, text)
			continue
		case r.Guest != j.Guest || r.Number != n:
			doubled("in place of record %d is another one: %q", n, r)
		case wasSaid && r != said:
			doubled("record %d was acknowledged as %q and is %q", n, said, r)
		case r.Epoch < previous.Epoch:
			doubled("boot %d has written record %d after boot %d had begun", r.Epoch, n, previous.Epoch)
		case r.Epoch == previous.Epoch && r.Boot != previous.Boot:
			doubled("two boots have written records %d and %d as boot %d", n-1, n, r.Epoch)
		case r.Epoch > previous.Epoch+1:
			lost("boot %d begins with record %d after boot %d: what was written between them is not on the disk",
				r.Epoch, n, previous.Epoch)
		}
		previous = r
	}
	f.Lost, f.Doubled = j.unheard(f.Lost), j.unheard(f.Doubled)
	return f, nil
}

// unheard leaves out what was returned before.
func (j *Journal) unheard(findings []string) []string {
	if j.found == nil {
		j.found = map[string]bool{}
	}
	var fresh []string
	for _, finding := range findings {
		if !j.found[finding] {
			j.found[finding] = true
			fresh = append(fresh, finding)
		}
	}
	return fresh
}

// readBlocks reads the disk up to the first empty block after block last. A disk that ends early has empty blocks.
func readBlocks(disk io.Reader, last int) ([][]byte, error) {
	var blocks [][]byte
	for n := 0; ; n++ {
		b := make([]byte, block)
		_, err := io.ReadFull(disk, b)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return nil, fmt.Errorf("read block %d: %w", n, err)
		}
		if n > last && len(bytes.TrimRight(b, "\x00")) == 0 {
			return blocks, nil
		}
		blocks = append(blocks, b)
	}
}
