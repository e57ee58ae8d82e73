package create

import (
	"fmt"
	"strconv"
	"strings"
)

// parameters are the `key:value,…` of one flag. The first thing that is wrong is kept for done.
type parameters struct {
	values map[string]string
	order  []string
	err    error
}

func parseParameters(text string) (*parameters, error) {
	p := &parameters{values: map[string]string{}}
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

func (p *parameters) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// take is a parameter that is then no longer unknown.
func (p *parameters) take(key string) (string, bool) {
	value, ok := p.values[key]
	delete(p.values, key)
	return value, ok
}

func (p *parameters) text(key string) string {
	value, _ := p.take(key)
	return value
}

func (p *parameters) must(key string) string {
	value, ok := p.take(key)
	if !ok {
		p.fail("%s is missing", key)
	}
	return value
}

func (p *parameters) bootOrder() uint {
	value, ok := p.take("bootorder")
	if !ok {
		return 0
	}
	order, err := strconv.ParseUint(value, 10, 16)
	if err != nil || order == 0 {
		p.fail("bootorder %q is not a number from 1 on", value)
	}
	return uint(order)
}

func (p *parameters) yes(key string) bool {
	value, ok := p.take(key)
	if !ok {
		return false
	}
	yes, err := strconv.ParseBool(value)
	if err != nil {
		p.fail("%s %q is neither true nor false", key, value)
	}
	return yes
}

// done reports what was wrong, or a parameter that nobody took.
func (p *parameters) done() error {
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
