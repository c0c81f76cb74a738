package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// CutPower keeps synced data, and loses data that was only in memory or in the disk's cache.
func TestAPowerCutLosesWhatWasNotSynced(t *testing.T) {
	n := startNodeWith(t, vm.Options{Disk: filepath.Join(t.TempDir(), "disk.qcow2")})
	n.shell("mkdir /var/power && cd /var/power && echo kept > synced && busybox sync && echo lost > unsynced")
	if err := n.CutPower(n.ctx); err != nil {
		t.Fatal(err)
	}
	if got := n.shell("cd /var/power && cat synced && ls"); strings.Join(strings.Fields(got), " ") != "kept synced" {
		t.Errorf("files after the power cut = %q, want only synced data", got)
	}
	for _, fault := range n.Audit(n.ctx, false) {
		t.Error(fault)
	}
}
