package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseUserData(t *testing.T) {
	no, yes := false, true
	tests := map[string]struct {
		in   string
		want Config
		err  string
	}{
		"empty":     {in: " \n", want: Config{User: "root"}},
		"script":    {in: "#!/bin/sh\necho hi\n", want: Config{User: "root", Script: []byte("#!/bin/sh\necho hi\n")}},
		"no header": {in: "hostname: x\n", err: `first line is "hostname: x"`},
		"not yaml":  {in: "#cloud-config\n\tx: [", err: "yaml"},
		"hostname":  {in: "#cloud-config\nhostname: a\nfqdn: a.b\n", want: Config{User: "root", Hostname: "a"}},
		"fqdn":      {in: "#cloud-config\r\nfqdn: a.b\n", want: Config{User: "root", Hostname: "a.b"}},
		"preserved": {in: "#cloud-config\nhostname: a\npreserve_hostname: true\n", want: Config{User: "root"}},
		"kubevirt's usual": {
			in: "#cloud-config\nuser: fedora\npassword: fedora\nchpasswd: { expire: False }\nssh_pwauth: True\n",
			want: Config{
				User: "fedora", Password: "fedora", SSHPassword: &yes,
				Users: []User{{Name: "fedora", Lock: &no}},
			},
		},
		"users": {
			in: "#cloud-config\nusers:\n- default\n- bob\n" +
				"- {name: ann, groups: 'wheel, sudo', lock_passwd: false, plain_text_passwd: pw, sudo: ALL, " +
				"ssh_authorized_keys: [k]}\n",
			want: Config{User: "root", Users: []User{
				{Name: "bob"},
				{Name: "ann", Groups: list{"wheel", "sudo"}, Lock: &no, Plain: "pw", Keys: []string{"k"}},
			}},
		},
		"users with commas": {
			in:   "#cloud-config\nusers: ann, bob\n",
			want: Config{User: "root", Users: []User{{Name: "ann"}, {Name: "bob"}}},
		},
		"bad user name": {in: "#cloud-config\nusers: [{name: 'a:b'}]\n", err: `"a:b" cannot be a user's name`},
		"chpasswd": {
			in: "#cloud-config\nchpasswd:\n  list: |\n    root:pw:with:colons\n    ann:$6$salt$hash\n    bob:R\n" +
				"  users: [{name: eve, password: x}, {name: joe, password: y, type: text}]\n",
			want: Config{User: "root", Set: []Password{
				{"root", "pw:with:colons", "text"},
				{"ann", "$6$salt$hash", "hash"},
				{"bob", "R", "RANDOM"},
				{"eve", "x", "hash"},
				{"joe", "y", "text"},
			}},
		},
		"chpasswd as a list": {
			in:   "#cloud-config\nchpasswd: {list: ['root:x']}\n",
			want: Config{User: "root", Set: []Password{{"root", "x", "text"}}},
		},
		"chpasswd broken": {in: "#cloud-config\nchpasswd: {list: [rootx]}\n", err: "USER:PASSWORD"},
		"chpasswd type": {
			in: "#cloud-config\nchpasswd: {users: [{name: a, password: b, type: c}]}\n", err: `type "c"`,
		},
		"ssh_pwauth":       {in: "#cloud-config\nssh_pwauth: no\n", want: Config{User: "root", SSHPassword: &no}},
		"ssh_pwauth kept":  {in: "#cloud-config\nssh_pwauth: unchanged\n", want: Config{User: "root"}},
		"ssh_pwauth wrong": {in: "#cloud-config\nssh_pwauth: maybe\n", err: "need true or false"},
		"commands": {
			in: "#cloud-config\nbootcmd:\n- echo a\nruncmd:\n- echo 'b c'\n- [echo, 'd e', \"f'g\"]\n",
			want: Config{
				User: "root", Boot: []Command{{Line: "echo a"}},
				Run: []Command{{Line: "echo 'b c'"}, {Words: []string{"echo", "d e", "f'g"}}},
			},
		},
		"command wrong": {in: "#cloud-config\nruncmd: [{a: b}]\n", err: "a command is a string or a list"},
		"files": {
			in: "#cloud-config\nwrite_files:\n- {path: /a, content: x, permissions: '0600', " +
				"owner: 'ann:ann'}\n- {path: /b, content: eA==, encoding: b64, permissions: 0755, append: true}\n",
			want: Config{User: "root", Files: []File{
				{Path: "/a", Content: "x", Data: []byte("x"), Permissions: 0o600, Owner: "ann:ann"},
				{Path: "/b", Content: "eA==", Data: []byte("x"), Encoding: "b64", Permissions: 0o755, Append: true},
			}},
		},
		"file without path": {
			in: "#cloud-config\nwrite_files: [{content: x}]\n", err: "write_files[0]: path is missing",
		},
		"file not base64": {
			in:  "#cloud-config\nwrite_files: [{path: /x, content: '%', encoding: base64}]\n",
			err: "write_files[0] (/x): content is not base64",
		},
		"file not gzip": {
			in: "#cloud-config\nwrite_files: [{path: /x, content: 'x', encoding: gzip}]\n", err: "content is not gzip",
		},
		"file encoding": {in: "#cloud-config\nwrite_files: [{path: /x, encoding: rot13}]\n", err: `encoding "rot13"`},
		"file permissions": {
			in: "#cloud-config\nwrite_files: [{path: /x, permissions: rwx}]\n", err: `permissions "rwx"`,
		},
		"what is not done": {
			in:   "#cloud-config\npackages: [nginx]\ngrowpart: {mode: auto}\n",
			want: Config{User: "root", Ignored: []string{"packages is not supported by the tiny guest"}},
		},
		"byte order mark": {
			in: "\xef\xbb\xbf#cloud-config\nhostname: a\n", want: Config{User: "root", Hostname: "a"},
		},
		"nothing but a title": {in: "#cloud-config\n", want: Config{User: "root"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseUserData([]byte(tt.in))
			if !hasError(err, tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if tt.err != "" {
				return
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func hasError(err error, want string) bool {
	if want == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), want)
}

func TestParseMetaData(t *testing.T) {
	tests := map[string]struct {
		in   string
		want MetaData
	}{
		"nocloud": {
			"instance-id: i\nlocal-hostname: h\npublic-keys:\n- a\n- b\n", MetaData{"i", "h", []string{"a", "b"}},
		},
		"json":          {`{"instance-id":"i","local-hostname":"h"}`, MetaData{"i", "h", nil}},
		"one string":    {"public-keys: |\n  a\n  b\n", MetaData{Keys: []string{"a", "b"}}},
		"mapping":       {"public-keys: {two: [b, c], one: a}\n", MetaData{Keys: []string{"a", "b", "c"}}},
		"config drive":  {`{"uuid":"u","hostname":"h","public_keys":{"k":"a"}}`, MetaData{"u", "h", []string{"a"}}},
		"nothing in it": {"", MetaData{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseMetaData([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestShellScript(t *testing.T) {
	got := string(shellScript([]Command{{Line: "cd /tmp && ls"}, {Words: []string{"echo", "it's", "$HOME"}}}))
	want := "#!/bin/sh\ncd /tmp && ls\n'echo' 'it'\\''s' '$HOME'\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// testSystem is a root file system in a directory that notes commands instead of running them.
func testSystem(t *testing.T) (*system, *[]string) {
	t.Helper()
	var ran []string
	s := &system{Root: t.TempDir()}
	s.exec = func(stdin string, words ...string) (string, error) {
		line := strings.ReplaceAll(strings.Join(words, " "), s.Root, "")
		if stdin != "" {
			line += " < " + strings.TrimSpace(stdin)
		}
		ran = append(ran, line)
		return "$6$" + strings.TrimSpace(stdin), nil
	}
	for name, text := range map[string]string{
		"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
		"/etc/group":  "root:x:0:\nwheel:x:10:root\n",
		"/etc/shadow": "root:x:19000::::::\n",
		"/bin/sh":     "",
	} {
		if err := s.write(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return s, &ran
}

func TestApply(t *testing.T) {
	c, err := ParseUserData([]byte(`#cloud-config
hostname: box.example.org
user: dev
password: pw
ssh_pwauth: false
ssh_authorized_keys: [key1]
users:
- {name: ann, uid: 1500, groups: [wheel, docker], shell: /bin/bash, plain_text_passwd: a, lock_passwd: false, ssh_authorized_keys: [key2]}
- {name: bob, plain_text_passwd: never}
chpasswd: {users: [{name: root, password: new, type: text}]}
write_files:
- {path: /etc/deep/file, content: one, permissions: '4711', owner: ann}
- {path: /etc/deep/file, content: two, append: true}
bootcmd: [echo boot]
runcmd: [echo run]
`))
	if err != nil {
		t.Fatal(err)
	}
	c.addMeta(MetaData{InstanceID: "i-1", Hostname: "other", Keys: []string{"key1", "key3"}})
	s, ran := testSystem(t)
	if err := s.local(c); err != nil {
		t.Fatal(err)
	}
	if err := s.final(c); err != nil {
		t.Fatal(err)
	}
	wantFiles := map[string]string{
		"/etc/hostname": "box\n",
		"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\ndev:x:1000:1000::/home/dev:/bin/sh\n" +
			"ann:x:1500:1500::/home/ann:/bin/sh\nbob:x:1502:1502::/home/bob:/bin/sh\n",
		"/etc/group": "root:x:0:\nwheel:x:10:root,ann\ndev:x:1000:\nann:x:1500:\ndocker:x:1501:ann\n" +
			"bob:x:1502:\n",
		"/etc/shadow": "root:$6$new:19000::::::\ndev:$6$pw:19000:0:99999:7:::\n" +
			"ann:$6$a:19000:0:99999:7:::\nbob:$6$locked$!:19000:0:99999:7:::\n",
		"/root/.ssh/authorized_keys":     "key1\nkey3\n",
		"/home/dev/.ssh/authorized_keys": "key1\nkey3\n",
		"/home/ann/.ssh/authorized_keys": "key2\n",
		"/etc/deep/file":                 "onetwo",
		"/etc/dropbear/no-passwords":     "",
		"/run/cloud-init/instance-id":    "i-1\n",
		"/run/cloud-init/runcmd":         "#!/bin/sh\necho run\n",
		"/etc/issue":                     "tiny guest of virtkit, \\n on \\l. Log in as cloud-init was told.\n\n",
	}
	for name, want := range wantFiles {
		got, err := os.ReadFile(filepath.Join(s.Root, name))
		if err != nil {
			t.Error(err)
		} else if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	wantRan := []string{
		"chown 1000:1000 /home/dev",
		"chown 1500:1500 /home/ann",
		"mkpasswd -m sha512 -P 0 < a",
		"chown -R 1500:1500 /home/ann/.ssh",
		"chown 1502:1502 /home/bob",
		"chown -R 0:0 /root/.ssh",
		"chown -R 1000:1000 /home/dev/.ssh",
		"mkpasswd -m sha512 -P 0 < pw",
		"mkpasswd -m sha512 -P 0 < new",
		"chown ann /etc/deep/file",
		"/run/cloud-init/bootcmd",
		"/run/cloud-init/runcmd",
	}
	if diff := cmp.Diff(wantRan, *ran); diff != "" {
		t.Error(diff)
	}
}

func TestReadSeed(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"meta-data": "local-hostname: m\n",
		"user-data": "#cloud-config\nruncmd: 3\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := readSeed(dir)
	if !hasError(err, "user-data:") || c.Hostname != "m" {
		t.Errorf("error %v and hostname %q; broken user-data must not hide meta-data", err, c.Hostname)
	}
	if n, err := readNetwork(dir); n != nil || err != nil {
		t.Errorf("no network-config: %v, %v", n, err)
	}
}

func FuzzUserData(f *testing.F) {
	f.Add("#cloud-config\nhostname: a\nusers: [default, {name: b}]\nruncmd: [a, [b]]\n")
	f.Add("#!/bin/sh\n")
	f.Add("#cloud-config\nwrite_files: [{path: /a, encoding: gz+b64, content: " +
		base64.StdEncoding.EncodeToString([]byte("x")) + "}]")
	f.Add("#cloud-config\nuser: {name: x}\nchpasswd: {list: ['a:b'], users: [{name: c}]}\n")
	f.Fuzz(func(t *testing.T, in string) {
		c, err := ParseUserData([]byte(in))
		if c == nil {
			t.Fatal("no Config")
		}
		if err != nil {
			return
		}
		for _, u := range c.Users {
			if checkName(u.Name) != nil {
				t.Errorf("user %q got through", u.Name)
			}
		}
		shellScript(append(c.Boot, c.Run...))
	})
}
