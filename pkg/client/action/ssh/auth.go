// Package ssh logs in to guests with ssh, in this process, over any connection that reaches them: keys of the agent and
// of files, passwords and questions, known hosts (Connect), then commands and shells (Session), forwarded ports
// (Forwards) and copies of files (Copier). It knows no terminal: who has one passes a Prompter, sizes and signals.
package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// Prompter asks the user. Answers of Secret are not shown while they are typed.
type Prompter interface {
	Secret(question string) (string, error)
	Line(question string) (string, error)
}

// DefaultIdentities are the files below ~/.ssh that are tried, as OpenSSH does.
var DefaultIdentities = []string{"id_rsa", "id_ecdsa", "id_ed25519"}

// passwordTries is how often a password may be wrong, and a passphrase.
const passwordTries = 3

// Auth is how to prove who the user is.
type Auth struct {
	// Identities are private key files that the user named: one that cannot be read is an error.
	Identities []string
	// Defaults are private key files that are used when they can be.
	Defaults []string
	// AgentSocket is the path of the agent's socket; "" is no agent.
	AgentSocket string
	// Prompt asks for passphrases and passwords; nil is nobody to ask.
	Prompt Prompter
	// Who is USER@MACHINE, for questions.
	Who string
}

// methods returns the ways in, and what to close after the handshake.
func (a *Auth) methods(ctx context.Context) ([]ssh.AuthMethod, io.Closer, error) {
	named, err := a.load(a.Identities, true)
	if err != nil {
		return nil, nil, err
	}
	defaults, err := a.load(a.Defaults, false)
	if err != nil {
		return nil, nil, err
	}
	agentSigners, closer := a.agent(ctx)
	signers := merge(named, agentSigners, defaults)
	var methods []ssh.AuthMethod
	if len(signers) > 0 {
		methods = append(methods, ssh.PublicKeys(signers...))
	}
	if a.Prompt != nil {
		methods = append(methods,
			ssh.RetryableAuthMethod(ssh.KeyboardInteractive(a.challenge), passwordTries),
			ssh.RetryableAuthMethod(ssh.PasswordCallback(func() (string, error) {
				return a.Prompt.Secret(a.Who + "'s password: ")
			}), passwordTries))
	}
	return methods, closer, nil
}

// challenge answers a server's questions by asking the user. The server's text is not trusted with the terminal.
func (a *Auth) challenge(name, instruction string, questions []string, echos []bool) ([]string, error) {
	intro := ""
	for _, text := range []string{name, instruction} {
		if text != "" {
			intro += clean(text) + "\n"
		}
	}
	answers := make([]string, 0, len(questions))
	for i, question := range questions {
		ask := a.Prompt.Secret
		if echos[i] {
			ask = a.Prompt.Line
		}
		answer, err := ask(intro + "(" + a.Who + ") " + clean(question))
		if err != nil {
			return nil, err
		}
		intro = ""
		answers = append(answers, answer)
	}
	return answers, nil
}

// clean drops what would steer a terminal, and bounds the rest.
func clean(text string) string {
	const most = 1024
	if len(text) > most {
		text = text[:most]
	}
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, bytes.ToValidUTF8([]byte(text), nil)))
}

// agent asks the agent for its keys; one that does not answer is none.
func (a *Auth) agent(ctx context.Context) ([]ssh.Signer, io.Closer) {
	if a.AgentSocket == "" {
		return nil, nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.AgentSocket)
	if err != nil {
		return nil, nil
	}
	signers, err := agent.NewClient(conn).Signers()
	if err != nil {
		conn.Close()
		return nil, nil
	}
	return signers, conn
}

// merge returns all signers, each key once. An encrypted file gives way to the agent's same key, which asks nothing.
func merge(lists ...[]ssh.Signer) []ssh.Signer {
	var out []ssh.Signer
	at := map[string]int{}
	for _, list := range lists {
		for _, s := range list {
			key := string(s.PublicKey().Marshal())
			i, known := at[key]
			if !known {
				at[key] = len(out)
				out = append(out, s)
			} else if _, locked := out[i].(*lockedKey); locked {
				out[i] = s
			}
		}
	}
	return out
}

// load reads private keys. Files that the user has not named may be missing, or be of a kind that we do not know.
func (a *Auth) load(files []string, named bool) ([]ssh.Signer, error) {
	var out []ssh.Signer
	for _, file := range files {
		signer, err := a.key(file)
		switch {
		case err == nil:
			out = append(out, certified(file, signer)...)
		case named:
			return nil, fmt.Errorf("identity file %s: %w", file, err)
		}
	}
	return out, nil
}

func (a *Auth) key(file string) (ssh.Signer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			return nil, path.Err
		}
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(data)
	var locked *ssh.PassphraseMissingError
	if !errors.As(err, &locked) {
		return signer, err
	}
	public := locked.PublicKey
	if public == nil {
		// Old formats keep the public key in a file beside.
		data, err := os.ReadFile(file + ".pub")
		if err == nil {
			public, _, _, _, err = ssh.ParseAuthorizedKey(data)
		}
		if err != nil {
			return nil, errors.New("it is encrypted, and its public key is not beside it; load it with `ssh-add`")
		}
	}
	if a.Prompt == nil {
		return nil,
			errors.New("it is encrypted, and there is no terminal to ask for its passphrase; load it with `ssh-add`")
	}
	return &lockedKey{file: file, data: data, public: public, prompt: a.Prompt}, nil
}

// certified adds the signer with its certificate, FILE-cert.pub, where there is one.
func certified(file string, signer ssh.Signer) []ssh.Signer {
	data, err := os.ReadFile(file + "-cert.pub")
	if err != nil {
		return []ssh.Signer{signer}
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(data)
	if cert, ok := public.(*ssh.Certificate); ok && err == nil {
		if with, err := ssh.NewCertSigner(cert, signer); err == nil {
			return []ssh.Signer{with, signer}
		}
	}
	return []ssh.Signer{signer}
}

// lockedKey is an encrypted key: the passphrase is asked for when the server has said that it takes the key.
type lockedKey struct {
	file   string
	data   []byte
	public ssh.PublicKey
	prompt Prompter

	mu  sync.Mutex
	key ssh.AlgorithmSigner
}

func (k *lockedKey) PublicKey() ssh.PublicKey { return k.public }

func (k *lockedKey) Sign(rand io.Reader, data []byte) (*ssh.Signature, error) {
	return k.SignWithAlgorithm(rand, data, "")
}

// SignWithAlgorithm implements ssh.AlgorithmSigner, which RSA needs.
func (k *lockedKey) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range passwordTries {
		if k.key != nil {
			break
		}
		phrase, err := k.prompt.Secret("Enter passphrase for key '" + k.file + "': ")
		if err != nil {
			return nil, err
		}
		signer, err := ssh.ParsePrivateKeyWithPassphrase(k.data, []byte(phrase))
		if err != nil {
			continue
		}
		key, ok := signer.(ssh.AlgorithmSigner)
		if !ok {
			return nil, fmt.Errorf("identity file %s: a kind of key that cannot sign", k.file)
		}
		k.key = key
	}
	if k.key == nil {
		return nil, fmt.Errorf("identity file %s: the passphrase is wrong", k.file)
	}
	return k.key.SignWithAlgorithm(rand, data, algorithm)
}
