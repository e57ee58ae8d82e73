package list

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/migrate"
)

// moves reports whether the row says that the machine's guest is on its way to another node.
func (r Row) moves() bool { return r.Status == string(v1.VirtualMachineStatusMigrating) }

// MigrationLister lists migrations.
type MigrationLister interface {
	MigrationList(
		ctx context.Context, namespace string, opts metav1.ListOptions,
	) (*v1.VirtualMachineInstanceMigrationList, error)
}

// Progress adds to rows how far the guests that move are. It asks only when there are such; a user who may not read
// migrations does without.
func Progress(ctx context.Context, api MigrationLister, namespace string, rows []Row) {
	if !slices.ContainsFunc(rows, Row.moves) {
		return
	}
	list, err := api.MigrationList(ctx, namespace, metav1.ListOptions{})
	if err != nil {
		return // the status says that they move; that is what was asked for
	}
	addProgress(rows, list.Items)
}

func addProgress(rows []Row, migrations []v1.VirtualMachineInstanceMigration) {
	far := map[string]string{}
	for i := range migrations {
		m := &migrations[i]
		if p := migrate.Progress(m); p != nil && !m.IsFinal() {
			far[m.Namespace+"/"+m.Spec.VMIName] = fmt.Sprintf("%d%%", p.Percent())
		}
	}
	for i := range rows {
		if rows[i].moves() {
			rows[i].Progress = far[rows[i].Namespace+"/"+rows[i].Name]
		}
	}
}
