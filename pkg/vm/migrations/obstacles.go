package migrations

import (
	"strconv"
	"strings"
)

// Kind is the kind of an Obstacle.
type Kind int

// The kinds.
const (
	// Unknown is a text that is none of ours.
	Unknown Kind = iota
	// Claim and HostDisk are a volume; the object is its name.
	Claim
	HostDisk
	// Interface is an obstacle in spec.domain.devices.interfaces; the object is the interface's name.
	Interface
	// Feature is an obstacle in spec.domain.cpu.features; the object is the feature's name.
	Feature
	// Field is a field of the spec; the object is its path below spec.
	Field
	// State is the claim of TPM and EFI variables, which only earlier virt-handlers reported; it has no object.
	State
)

// Obstacle is something that keeps a guest on its node. Text goes on where the object's name ends.
type Obstacle struct {
	Kind         Kind
	Object, Text string
}

// forms hold how obstacles of a kind are written: before, the object, which may be quoted, between, the text.
var forms = []struct {
	kind            Kind
	before, between string
	quoted          bool
}{
	{Claim, "volume ", ": PersistentVolumeClaim ", true},
	{HostDisk, "volume ", ": hostDisk ", true},
	{Interface, "interface ", " ", true},
	{Feature, "the feature ", " ", false},
	{Field, "spec.", " ", false},
	{State, "the persistent state ", "", false},
}

// between separates two obstacles. The text of one may contain it, too.
const between = "; "

// String returns the obstacle as a sentence.
func (o Obstacle) String() string {
	for _, form := range forms {
		switch {
		case form.kind != o.Kind:
		case form.quoted:
			return form.before + strconv.Quote(o.Object) + form.between + o.Text
		default:
			return form.before + o.Object + form.between + o.Text
		}
	}
	return o.Text
}

// EncodeObstacles writes obstacles as the message of the condition LiveMigratable.
func EncodeObstacles(obstacles []Obstacle) string {
	sentences := make([]string, len(obstacles))
	for i, o := range obstacles {
		sentences[i] = o.String()
	}
	return strings.Join(sentences, between)
}

// ParseObstacles reads what EncodeObstacles has written. A message of another origin is one obstacle.
func ParseObstacles(message string) []Obstacle {
	var out []Obstacle
	for part := range strings.SplitSeq(message, between) {
		if o := parseObstacle(part); o.Kind != Unknown || len(out) == 0 {
			out = append(out, o)
			continue
		}
		out[len(out)-1].Text += between + part
	}
	return out
}

func parseObstacle(sentence string) Obstacle {
	for _, form := range forms {
		rest, ok := strings.CutPrefix(sentence, form.before)
		if !ok {
			continue
		}
		if !form.quoted {
			if object, text, ok := strings.Cut(rest, form.between); ok {
				return Obstacle{form.kind, object, text}
			}
			continue
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			continue
		}
		object, err := strconv.Unquote(quoted)
		if text, ok := strings.CutPrefix(rest[len(quoted):], form.between); ok && err == nil {
			return Obstacle{form.kind, object, text}
		}
	}
	return Obstacle{Unknown, "", sentence}
}
