package create

import (
	"fmt"
	"strconv"
	"strings"
)

// Parameters are the `key:value,…` of one flag. The first thing that is wrong is kept for Done.
type Parameters struct {
	values map[string]string
	order  []string
	err    error
}

// ParseParameters reads `key:value,…`.
func ParseParameters(text string) (*Parameters, error) {
	p := &Parameters{values: map[string]string{}}
	for param := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(param, ":")
		if !ok || value == "" {
			return nil, fmt.Errorf("%q is not KEY:VALUE", param)
		}
		if _, twice := p.values[key]; twice {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		p.values[key] = value
		p.order = append(p.order, key)
	}
	return p, nil
}

// Fail keeps a mistake, if it is the first.
func (p *Parameters) Fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// Take returns a parameter, and takes it off the unknown ones.
func (p *Parameters) Take(key string) (string, bool) {
	value, ok := p.values[key]
	delete(p.values, key)
	return value, ok
}

// Text returns a parameter, or "".
func (p *Parameters) Text(key string) string {
	value, _ := p.Take(key)
	return value
}

// Must returns a parameter, and fails if it is missing.
func (p *Parameters) Must(key string) string {
	value, ok := p.Take(key)
	if !ok {
		p.Fail("%s is missing", key)
	}
	return value
}

// BootOrder returns a disk's place in the boot order; 0 where none is given.
func (p *Parameters) BootOrder() uint {
	value, ok := p.Take("bootorder")
	if !ok {
		return 0
	}
	order, err := strconv.ParseUint(value, 10, 16)
	if err != nil || order == 0 {
		p.Fail("bootorder %q is not a number from 1 on", value)
	}
	return uint(order)
}

// Yes returns a parameter that is true or false.
func (p *Parameters) Yes(key string) bool {
	value, ok := p.Take(key)
	if !ok {
		return false
	}
	yes, err := strconv.ParseBool(value)
	if err != nil {
		p.Fail("%s %q is neither true nor false", key, value)
	}
	return yes
}

// Done reports what was wrong, or a parameter that nobody took.
func (p *Parameters) Done() error {
	if p.err != nil {
		return p.err
	}
	for _, key := range p.order {
		if _, left := p.values[key]; left {
			return fmt.Errorf("unknown parameter %q", key)
		}
	}
	return nil
}

// ParseVolume reads a volume as the command line has it: of a container disk `src:IMAGE,…`, of a claim `src:NAME,…`, of
// an empty disk `size:SIZE,…`.
func ParseVolume(kind Kind, text string) (Volume, error) {
	p, err := ParseParameters(text)
	if err != nil {
		return Volume{}, err
	}
	source := "src"
	if kind == Empty {
		source = "size"
	}
	v := Volume{Kind: kind, Source: p.Must(source), Name: p.Text("name"), BootOrder: p.BootOrder()}
	if kind == Claim {
		v.ReadOnly = p.Yes("readonly")
	}
	return v, p.Done()
}

// ParseImport reads a volume that is imported, `type:TYPE,…`; with a kind, that is its type. Where it has no name, name
// makes one; nil leaves that to VM.
func ParseImport(kind, text string, name func() string) (Volume, error) {
	p, err := ParseParameters(text)
	if err != nil {
		return Volume{}, err
	}
	typed := kind == ""
	if typed {
		kind = p.Must("type")
		if kind != "" && ImportParameters(kind) == nil {
			p.Fail("type %q is not one of %s", kind, strings.Join(ImportTypes(), ", "))
		}
	}
	v := Volume{Kind: Import, Import: DataSource{Type: kind}}
	for _, parameter := range append([]string{"size"}, ImportParameters(kind)...) {
		if value, ok := p.Take(parameter); ok {
			v.Import.Set(parameter, value)
		}
	}
	if v.Name, v.BootOrder = p.Text("name"), p.BootOrder(); v.Name == "" && typed && name != nil {
		v.Name = name()
	}
	return v, p.Done()
}

// ParseSysprep reads `src:NAME[,type:configMap|secret]`.
func ParseSysprep(text string) (Sysprep, error) {
	p, err := ParseParameters(text)
	if err != nil {
		return Sysprep{}, err
	}
	s := Sysprep{Name: p.Must("src"), Type: p.Text("type")}
	return s, p.Done()
}

// ParseAccessCredential reads `src:SECRET[,type:ssh|password][,method:…][,user:ACCOUNT]`.
func ParseAccessCredential(text string) (AccessCredential, error) {
	p, err := ParseParameters(text)
	if err != nil {
		return AccessCredential{}, err
	}
	c := AccessCredential{Type: p.Text("type"), Source: p.Must("src"), Method: p.Text("method"), User: p.Text("user")}
	return c, p.Done()
}
