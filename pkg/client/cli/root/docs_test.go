package root

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// pages are the texts that show command lines.
var pages = []string{"README.md", "CONTRIBUTING.md", "docs/*.md"}

// TestDocsShowCommandsThatExist holds every command line of the docs, and of each command's help, against the tree: the
// command is there, and so are its flags, which take what is given to them; nothing is run.
func TestDocsShowCommandsThatExist(t *testing.T) {
	const root = "../../../../"
	shown := map[string]bool{}
	lines := 0
	for _, pattern := range pages {
		files, err := filepath.Glob(root + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range commandsOf(string(data)) {
				for _, line := range line.alternatives() {
					lines++
					name, err := line.parse()
					if err != nil {
						t.Errorf("%s shows `%s`: %v", strings.TrimPrefix(file, root), strings.Join(line.words, " "),
							err)
					}
					shown[name] = true
				}
			}
		}
	}
	if lines < 150 {
		t.Errorf("only %d command lines were found", lines)
	}
	all := verbs()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !shown[name] && unshown[name] == "" {
			t.Errorf("no page shows virtctl %s", name)
		}
		for _, line := range commandsOf(indented(all[name].Example)) {
			if _, err := line.parse(); err != nil {
				t.Errorf("virtctl %s --help shows `%s`: %v", name, strings.Join(line.words, " "), err)
			}
		}
	}
}

// unshown are commands of which a page needs no line, and why.
var unshown = map[string]string{
	"completion": "its help says how each shell takes it", "options": "every help names it",
	"template create": "it asks an add-on that virtkit does not bring",
}

// commandLine is a call of virtctl that a page shows.
type commandLine struct {
	words []string
	// whole says that nothing was left out of it: it is a line of a block, without brackets or an ellipsis.
	whole bool
}

var (
	// called is virtctl where a shell would run it: first on its line, in a pipeline or list, or after variables.
	called = regexp.MustCompile(
		`(?:^|[|;&(=]\s*|\$ |ProxyCommand |^[A-Z_]+=\S* )(?:bin/)?(?:virtctl|kubectl virt)( |$)`)
	span = regexp.MustCompile("`+([^`]+)`+")
)

// commandsOf finds the calls in a page's blocks of code, and in what stands in backticks.
func commandsOf(page string) []commandLine {
	var out []commandLine
	fenced := false
	page = strings.ReplaceAll(page, "\\\n", " ")
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(line, "    ") {
			out = append(out, callsIn(strings.TrimSpace(line), true)...)
			continue
		}
		for _, m := range span.FindAllStringSubmatch(line, -1) {
			out = append(out, callsIn(m[1], false)...)
		}
	}
	return out
}

func callsIn(code string, block bool) []commandLine {
	var out []commandLine
	for _, at := range called.FindAllStringIndex(code, -1) {
		words := shellWords(code[at[1]:])
		if len(words) == 0 {
			continue // the program alone
		}
		text := strings.Join(words, " ")
		whole := block && !strings.ContainsAny(text, "…|") && !strings.Contains(text, "...") &&
			!strings.Contains(text, " [")
		out = append(out, commandLine{words, whole})
	}
	return out
}

// shellWords splits what a shell would give to a command, up to its end. A | within a word stands for "or".
func shellWords(text string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	open := false
	end := func() {
		if open {
			words = append(words, word.String())
		}
		word.Reset()
		open = false
	}
	runes := []rune(text)
	inner := 0 // of $( … )
	for i, r := range runes {
		next := ' '
		if i+1 < len(runes) {
			next = runes[i+1]
		}
		switch {
		case inner > 0 || r == '(' && i > 0 && runes[i-1] == '$':
			inner += map[rune]int{'(': 1, ')': -1}[r]
			word.WriteRune(r)
			open = true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' && !open && strings.HasPrefix(text, "port-forward --stdio"):
			end()
			return words // the quote that ends an option of ssh
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ' ':
			end()
		case strings.ContainsRune(";&>)<", r), r == '|' && (!open || next == ' '), r == '#' && !open:
			end()
			return words
		default:
			word.WriteRune(r)
			open = true
		}
	}
	end()
	return words
}

// alternatives are the lines that start|stop|restart stands for.
func (l commandLine) alternatives() []commandLine {
	var out []commandLine
	for _, verb := range strings.Split(l.words[0], "|") {
		out = append(out, commandLine{append([]string{verb}, l.words[1:]...), l.whole})
	}
	return out
}

// parse looks the command up and has it read its flags, and its arguments where all of them are shown. It returns the
// command's name.
func (l commandLine) parse() (string, error) {
	var words []string
	for _, w := range l.words {
		if w == "…" || w == "..." {
			continue
		}
		if !l.whole {
			w = strings.TrimPrefix(w, "[")
			if !strings.Contains(w, "[") {
				w = strings.TrimSuffix(w, "]")
			}
			w = strings.TrimSuffix(w, "...")
		}
		words = append(words, w)
	}
	if len(words) > 0 && words[0] == strings.ToUpper(words[0]) && !strings.HasPrefix(words[0], "-") {
		return "", nil // VERB
	}
	tree := NewCommand(cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" }))
	if len(words) > 0 && words[0] == "help" {
		words = append(words[1:], "--help")
	}
	cmd, rest, err := tree.Find(words)
	if err != nil {
		return "", err
	}
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	var valueless *pflag.ValueRequiredError
	if err := cmd.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) &&
		(l.whole || !errors.As(err, &valueless)) { // what only names a flag has no value for it
		return name, err
	}
	if cmd == tree && len(cmd.Flags().Args()) > 0 {
		return name, errors.New("there is no such command: " + cmd.Flags().Arg(0))
	}
	if !l.whole || cmd.Flags().Changed("help") {
		return name, nil
	}
	return name,
		errors.Join(cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateFlagGroups(), cmd.ValidateRequiredFlags())
}

func indented(example string) string {
	var out strings.Builder
	for line := range strings.Lines(example) {
		out.WriteString("    " + line)
	}
	return out.String()
}
