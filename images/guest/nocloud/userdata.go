package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Config is what user-data and meta-data ask for. The keys are cloud-init's:
// https://cloudinit.readthedocs.io/en/latest/reference/modules.html
type Config struct {
	Hostname   string
	InstanceID string
	// User is the user that Password and Keys are for: root, unless user-data has `user:`.
	User     string
	Password string
	Keys     []string
	Users    []User
	Set      []Password // chpasswd
	// SSHPassword is ssh_pwauth; nil leaves logins by password allowed.
	SSHPassword *bool
	Files       []File
	Boot, Run   []Command
	Script      []byte // user-data that is itself a script
	// Ignored has a sentence for everything that was asked for and is not done.
	Ignored []string
}

// User is one entry of `users:`.
type User struct {
	Name    string   `yaml:"name"`
	Comment string   `yaml:"gecos"`
	Groups  list     `yaml:"groups"`
	Shell   string   `yaml:"shell"`
	Home    string   `yaml:"homedir"`
	UID     int      `yaml:"uid"`
	NoHome  bool     `yaml:"no_create_home"`
	Plain   string   `yaml:"plain_text_passwd"`
	Hash    string   `yaml:"passwd"`
	Hashed  string   `yaml:"hashed_passwd"`
	Lock    *bool    `yaml:"lock_passwd"` // nil means locked, as in cloud-init
	Keys    []string `yaml:"ssh_authorized_keys"`
}

// Password is one entry of `chpasswd:`.
type Password struct {
	Name  string `yaml:"name"`
	Value string `yaml:"password"`
	Type  string `yaml:"type"` // text, hash or RANDOM
}

// Command is one entry of runcmd or bootcmd: a line for the shell, or words.
type Command struct {
	Line  string
	Words []string
}

// UnmarshalYAML takes a string or a list of strings.
func (c *Command) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode(&c.Words)
	}
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: a command is a string or a list of strings", n.Line)
	}
	return n.Decode(&c.Line)
}

// list is a list of strings, or one string with commas.
type list []string

// UnmarshalYAML takes both forms.
func (l *list) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return n.Decode((*[]string)(l))
	}
	for s := range strings.SplitSeq(n.Value, ",") {
		if s = strings.TrimSpace(s); s != "" {
			*l = append(*l, s)
		}
	}
	return nil
}

// cloudConfig is the document after #cloud-config.
type cloudConfig struct {
	Hostname string    `yaml:"hostname"`
	FQDN     string    `yaml:"fqdn"`
	Preserve bool      `yaml:"preserve_hostname"`
	User     yaml.Node `yaml:"user"`
	Users    yaml.Node `yaml:"users"`
	Password string    `yaml:"password"`
	Chpasswd struct {
		List   yaml.Node  `yaml:"list"`
		Users  []Password `yaml:"users"`
		Expire yaml.Node  `yaml:"expire"`
	} `yaml:"chpasswd"`
	SSHPassword yaml.Node `yaml:"ssh_pwauth"`
	Keys        []string  `yaml:"ssh_authorized_keys"`
	Files       []File    `yaml:"write_files"`
	Boot        []Command `yaml:"bootcmd"`
	Run         []Command `yaml:"runcmd"`

	Rest map[string]yaml.Node `yaml:",inline"`
}

// meaningless are keys that change nothing in a guest that is made anew at each boot.
var meaningless = []string{
	"package_update", "package_upgrade", "manage_etc_hosts", "disable_root", "final_message", "timezone",
	"locale", "growpart", "resize_rootfs", "output", "prefer_fqdn_over_hostname", "ssh_deletekeys", "version",
}

// ParseUserData reads user-data: a #cloud-config document, a #! script, or nothing. On an error the
// Config holds nothing but its defaults.
func ParseUserData(data []byte) (*Config, error) {
	empty := &Config{User: "root"}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	first, _, _ := bytes.Cut(data, []byte("\n"))
	header := strings.TrimSpace(string(first))
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return empty, nil
	case strings.HasPrefix(header, "#!"):
		return &Config{User: "root", Script: data}, nil
	case header != "#cloud-config":
		return empty, fmt.Errorf("first line is %.40q, neither #cloud-config nor a #! line", header)
	}
	var in cloudConfig
	if err := yaml.Unmarshal(data, &in); err != nil {
		return empty, err
	}
	c := &Config{User: "root", Password: in.Password, Keys: in.Keys, Files: in.Files, Boot: in.Boot, Run: in.Run}
	if err := c.fill(&in); err != nil {
		return empty, err
	}
	return c, nil
}

func (c *Config) fill(in *cloudConfig) error {
	if !in.Preserve {
		c.Hostname = in.Hostname
		if c.Hostname == "" {
			c.Hostname = in.FQDN
		}
	}
	if err := c.users(in); err != nil {
		return err
	}
	if err := c.passwords(in); err != nil {
		return err
	}
	if n := in.SSHPassword; !n.IsZero() && n.Value != "unchanged" {
		var yes bool
		if err := n.Decode(&yes); err != nil {
			return fmt.Errorf("ssh_pwauth: need true or false, not %q", n.Value)
		}
		c.SSHPassword = &yes
	}
	for i := range c.Files {
		if c.Files[i].Path == "" {
			return fmt.Errorf("write_files[%d]: path is missing", i)
		}
		if err := c.Files[i].decode(); err != nil {
			return fmt.Errorf("write_files[%d] (%s): %w", i, c.Files[i].Path, err)
		}
	}
	for key := range in.Rest {
		if !slices.Contains(meaningless, key) {
			c.Ignored = append(c.Ignored, key+" is not supported by the tiny guest")
		}
	}
	slices.Sort(c.Ignored)
	return nil
}

// users reads `user:` (a name or a mapping) and `users:` (a list of names, of mappings, or names
// with commas). The entry "default" stands for the default user, who is there anyway.
func (c *Config) users(in *cloudConfig) error {
	if n := in.User; !n.IsZero() {
		u := User{Name: n.Value}
		if n.Kind == yaml.MappingNode {
			if err := n.Decode(&u); err != nil {
				return fmt.Errorf("user: %w", err)
			}
		}
		if u.Name != "" {
			c.User = u.Name
			open := false
			if u.Lock == nil {
				u.Lock = &open
			}
			c.Users = append(c.Users, u)
		}
	}
	var nodes []yaml.Node
	switch n := in.Users; {
	case n.IsZero():
	case n.Kind == yaml.ScalarNode:
		var names list
		if err := n.Decode(&names); err != nil {
			return err
		}
		for _, name := range names {
			nodes = append(nodes, yaml.Node{Kind: yaml.ScalarNode, Value: name})
		}
	default:
		if err := n.Decode(&nodes); err != nil {
			return fmt.Errorf("users: %w", err)
		}
	}
	for i, n := range nodes {
		u := User{Name: n.Value}
		if n.Kind == yaml.MappingNode {
			if err := n.Decode(&u); err != nil {
				return fmt.Errorf("users[%d]: %w", i, err)
			}
			if u.Name == "" {
				c.Ignored = append(c.Ignored, fmt.Sprintf("users[%d] has no name", i))
				continue
			}
		}
		if u.Name == "default" || u.Name == "" {
			continue
		}
		c.Users = append(c.Users, u)
	}
	for _, u := range c.Users {
		if err := checkName(u.Name); err != nil {
			return fmt.Errorf("users: %w", err)
		}
	}
	return nil
}

// passwords reads `chpasswd:`.
func (c *Config) passwords(in *cloudConfig) error {
	var lines []string
	switch n := in.Chpasswd.List; {
	case n.IsZero():
	case n.Kind == yaml.ScalarNode:
		lines = strings.Split(n.Value, "\n")
	default:
		if err := n.Decode(&lines); err != nil {
			return fmt.Errorf("chpasswd.list: %w", err)
		}
	}
	for _, line := range lines {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return errors.New("chpasswd.list: an entry is USER:PASSWORD")
		}
		p := Password{Name: name, Value: value, Type: "text"}
		if hashed(value) {
			p.Type = "hash"
		} else if value == "R" || value == "RANDOM" {
			p.Type = "RANDOM"
		}
		c.Set = append(c.Set, p)
	}
	for i, p := range in.Chpasswd.Users {
		switch p.Type {
		case "":
			p.Type = "hash"
		case "text", "hash", "RANDOM":
		default:
			return fmt.Errorf("chpasswd.users[%d]: type %q: need hash, text or RANDOM", i, p.Type)
		}
		c.Set = append(c.Set, p)
	}
	for _, p := range c.Set {
		if err := checkName(p.Name); err != nil {
			return fmt.Errorf("chpasswd: %w", err)
		}
	}
	return nil
}

// hashed says whether a password looks like a crypt(3) hash: $6$salt$…
func hashed(s string) bool {
	return len(s) > 3 && s[0] == '$' && strings.Count(s, "$") >= 3 && strings.Contains("1256y", s[1:2])
}

// checkName refuses user names that would break /etc/passwd.
func checkName(name string) error {
	if name == "" || len(name) > 32 || strings.ContainsAny(name, ":/ \t\r\n,") || name[0] == '-' {
		return fmt.Errorf("%q cannot be a user's name", name)
	}
	return nil
}
