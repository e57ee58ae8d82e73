// Package credentials changes the keys and passwords that a VM's users have through spec.accessCredentials: it finds
// the Secret that holds them, or makes one, and changes it. The guest follows within a minute or two, when the kubelet
// has brought the Secret to the VM's pod and the guest agent has applied it. It knows no terminal.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// attempts is how often a change is tried that meets another one.
const attempts = 5

// Options of all three changes.
type Options struct {
	Namespace, VM string
	// User is the guest's.
	User string
	// Secret is the one to change, of those that the VM names for the user; it may be empty when there is one.
	Secret string
	// Create makes a new Secret, Update never does; without either one is made when the VM names none.
	Create, Update bool
	// Force changes a Secret that is not the VM's own, and adds one to a VM that runs, where it counts after a restart.
	Force bool
	// DryRun has the server check everything and change nothing.
	DryRun bool
	// RandomName gives n random letters and digits, for new names.
	RandomName func(n int) string
}

// What has happened to a Secret.
const (
	Created   = "created"
	Updated   = "updated"
	Unchanged = "unchanged"
)

// Change is what `credentials … -o json` prints.
type Change struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the name and the namespace of the VM.
	metav1.ObjectMeta `json:"metadata"`
	// User is the guest's.
	User string `json:"user"`
	// Secrets are those that were looked at, and what has happened to each.
	Secrets []SecretChange `json:"secrets"`
	// RestartRequired says that the running guest gets it after a restart only, since its pod does not know the Secret.
	RestartRequired bool `json:"restartRequired,omitempty"`
}

// SecretChange is what has happened to one Secret.
type SecretChange struct {
	// Name is the Secret's; in a dry run the beginning of what it would be.
	Name string `json:"name"`
	// Change is created, updated or unchanged.
	Change string `json:"change"`
}

// DeepCopyObject implements runtime.Object.
func (c *Change) DeepCopyObject() runtime.Object {
	out := *c
	out.ObjectMeta = *c.DeepCopy()
	out.Secrets = slices.Clone(c.Secrets)
	return &out
}

func (o *Options) change(secrets ...SecretChange) *Change {
	if secrets == nil {
		secrets = []SecretChange{}
	}
	return &Change{
		TypeMeta:   metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "CredentialChange"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.VM},
		User:       o.User, Secrets: secrets,
	}
}

// machine reads the VM, after a look at the options.
func (o *Options) machine(ctx context.Context, c *client.Client) (*v1.VirtualMachine, error) {
	if !surface.GuestUser(o.User) {
		return nil, fmt.Errorf("%q is not the name of a user", o.User)
	}
	vm, err := c.VM(ctx, o.Namespace, o.VM)
	if err != nil {
		return nil, err
	}
	if vm.Spec.Template == nil {
		return nil, fmt.Errorf("VM %s/%s has no spec.template", o.Namespace, o.VM)
	}
	return vm, nil
}

// AddKeys lets the user log in with the keys.
func AddKeys(ctx context.Context, c *client.Client, o Options, keys []string) (*Change, error) {
	vm, err := o.machine(ctx, c)
	if err != nil {
		return nil, err
	}
	secrets := keySecrets(&vm.Spec.Template.Spec, o.User)
	if o.Create || len(secrets) == 0 && !o.Update {
		data := map[string][]byte{"ssh-key-" + o.RandomName(6): []byte(strings.Join(keys, "\n") + "\n")}
		return o.assign(ctx, c, vm, "-ssh-key-", data, keyCredential(o.User))
	}
	name, err := o.pick(secrets)
	if err != nil {
		return nil, err
	}
	return o.edit(ctx, c, vm, name, func(data map[string][]byte) map[string][]byte {
		lacking := missing(data, keys)
		if len(lacking) == 0 {
			return nil
		}
		return map[string][]byte{"ssh-key-" + o.RandomName(6): []byte(strings.Join(lacking, "\n") + "\n")}
	})
}

// RemoveKeys takes keys from the user, out of all the Secrets that give it some, or out of o.Secret.
func RemoveKeys(ctx context.Context, c *client.Client, o Options, keys []string) (*Change, error) {
	vm, err := o.machine(ctx, c)
	if err != nil {
		return nil, err
	}
	secrets := keySecrets(&vm.Spec.Template.Spec, o.User)
	if o.Secret != "" {
		if !slices.Contains(secrets, o.Secret) {
			return nil, fmt.Errorf("secret %s is not associated with user %s", o.Secret, o.User)
		}
		secrets = []string{o.Secret}
	}
	out := o.change()
	for _, name := range secrets {
		one, err := o.edit(ctx, c, vm, name,
			func(data map[string][]byte) map[string][]byte { return without(data, keys) })
		if apierrors.IsNotFound(err) {
			continue // and so are its keys
		}
		if err != nil {
			return nil, err
		}
		out.Secrets = append(out.Secrets, one.Secrets...)
	}
	return out, nil
}

// SetPassword sets the user's password.
func SetPassword(ctx context.Context, c *client.Client, o Options, password string) (*Change, error) {
	if !surface.GuestPassword(password) {
		return nil, fmt.Errorf("the password must be one line of 1 to %d bytes", surface.MaxGuestPassword)
	}
	vm, err := o.machine(ctx, c)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{o.User: []byte(password)}
	secrets := passwordSecrets(&vm.Spec.Template.Spec)
	if o.Create {
		return o.assign(ctx, c, vm, "-password-", data, passwordCredential)
	}
	if len(secrets) == 0 {
		return nil, fmt.Errorf("no secrets assigned to UserPassword AccessCredentials of VM %s; --create-secret "+
			"makes one", o.VM)
	}
	name, err := o.pick(secrets)
	if err != nil {
		return nil, err
	}
	return o.edit(ctx, c, vm, name, func(old map[string][]byte) map[string][]byte {
		if string(old[o.User]) == password {
			return nil
		}
		return data
	})
}

// pick finds the Secret to change among those that the VM names.
func (o *Options) pick(secrets []string) (string, error) {
	switch {
	case len(secrets) == 0:
		return "", fmt.Errorf("no secrets specified for user: %s; --create-secret makes one", o.User)
	case o.Secret != "" && !slices.Contains(secrets, o.Secret):
		return "", fmt.Errorf("secret %s was not assigned; the VM has %s", o.Secret, strings.Join(secrets, ", "))
	case o.Secret != "":
		return o.Secret, nil
	case len(secrets) > 1:
		return "", fmt.Errorf("multiple secrets specified, use option --secret to specify which secret to modify: %s",
			strings.Join(secrets, ", "))
	}
	return secrets[0], nil
}

// edit merges what change gives, nothing when it is empty, into a Secret, as long as that has not changed meanwhile.
func (o *Options) edit(
	ctx context.Context, c *client.Client, vm *v1.VirtualMachine, name string,
	change func(map[string][]byte) map[string][]byte,
) (*Change, error) {
	var err error
	for range attempts {
		var secret *corev1.Secret
		if secret, err = c.Secret(ctx, o.Namespace, name); err != nil {
			return nil, err
		}
		data := change(secret.Data)
		if len(data) == 0 {
			return o.change(SecretChange{name, Unchanged}), nil
		}
		if !o.Force && !ownedBy(secret, vm) {
			return nil, fmt.Errorf("secret %s does not have an owner reference pointing to VM %s, so others may use "+
				"it too; --force changes it nevertheless", name, vm.Name)
		}
		patch := map[string]any{"metadata": map[string]any{"resourceVersion": secret.ResourceVersion}, "data": data}
		if _, err = c.PatchSecret(ctx, o.Namespace, name, patch, o.DryRun); err == nil {
			return o.change(SecretChange{name, Updated}), nil
		}
		if !apierrors.IsConflict(err) {
			return nil, err
		}
	}
	return nil, err
}

// assign makes a Secret of the VM's and names it in the VM.
func (o *Options) assign(
	ctx context.Context, c *client.Client, vm *v1.VirtualMachine, suffix string, data map[string][]byte,
	credential func(secret string) v1.AccessCredential,
) (*Change, error) {
	_, err := c.VMI(ctx, o.Namespace, o.VM)
	runs := err == nil
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, err
	case runs && !o.Force:
		return nil, fmt.Errorf("virtual machine %s is running. Use --force flag to update a running VM, it will take "+
			"effect after restart", vm.Name)
	}
	secret, err := c.CreateSecret(ctx, &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: vm.Name + suffix + o.RandomName(5),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
		},
		Data: data,
	}, o.DryRun)
	if err != nil {
		return nil, fmt.Errorf("create the secret: %w", err)
	}
	for range attempts {
		credentials := append(slices.Clone(vm.Spec.Template.Spec.AccessCredentials), credential(secret.Name))
		patch := map[string]any{
			"metadata": map[string]any{"resourceVersion": vm.ResourceVersion},
			"spec": map[string]any{
				"template": map[string]any{"spec": map[string]any{"accessCredentials": credentials}},
			},
		}
		if _, err = c.MergeVM(ctx, o.Namespace, o.VM, patch, o.DryRun); !apierrors.IsConflict(err) {
			break
		}
		if vm, err = o.machine(ctx, c); err != nil {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("name secret %s in VM %s: %w", secret.Name, o.VM, err)
		if !o.DryRun {
			err = errors.Join(err, c.DeleteSecret(context.WithoutCancel(ctx), o.Namespace, secret.Name))
		}
		return nil, err
	}
	out := o.change(SecretChange{secret.Name, Created})
	out.RestartRequired = runs
	return out, nil
}

func ownedBy(object metav1.Object, vm *v1.VirtualMachine) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.Kind == v1.VirtualMachineGroupVersionKind.Kind && r.Name == vm.Name && r.UID == vm.UID
	})
}

// keySecrets returns the Secrets whose keys the agent gives the user.
func keySecrets(spec *v1.VirtualMachineInstanceSpec, user string) []string {
	var out []string
	for i := range spec.AccessCredentials {
		key := spec.AccessCredentials[i].SSHPublicKey
		if key == nil || key.Source.Secret == nil || key.PropagationMethod.QemuGuestAgent == nil {
			continue
		}
		if name := key.Source.Secret.SecretName; slices.Contains(key.PropagationMethod.QemuGuestAgent.Users, user) &&
			!slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// passwordSecrets returns the Secrets whose passwords the agent sets.
func passwordSecrets(spec *v1.VirtualMachineInstanceSpec) []string {
	var out []string
	for i := range spec.AccessCredentials {
		p := spec.AccessCredentials[i].UserPassword
		if p != nil && p.Source.Secret != nil && p.PropagationMethod.QemuGuestAgent != nil &&
			!slices.Contains(out, p.Source.Secret.SecretName) {
			out = append(out, p.Source.Secret.SecretName)
		}
	}
	return out
}

func keyCredential(user string) func(secret string) v1.AccessCredential {
	return func(secret string) v1.AccessCredential {
		return v1.AccessCredential{SSHPublicKey: &v1.SSHPublicKeyAccessCredential{
			Source: v1.SSHPublicKeyAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: secret}},
			PropagationMethod: v1.SSHPublicKeyAccessCredentialPropagationMethod{
				QemuGuestAgent: &v1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{Users: []string{user}},
			},
		}}
	}
}

func passwordCredential(secret string) v1.AccessCredential {
	return v1.AccessCredential{UserPassword: &v1.UserPasswordAccessCredential{
		Source: v1.UserPasswordAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: secret}},
		PropagationMethod: v1.UserPasswordAccessCredentialPropagationMethod{
			QemuGuestAgent: &v1.QemuGuestAgentUserPasswordAccessCredentialPropagation{},
		},
	}}
}
