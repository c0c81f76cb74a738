package vm

import "testing"

func TestModuleNames(t *testing.T) {
	for path, want := range map[string]string{
		"kernel/drivers/net/virtio_net.ko.xz": "virtio_net", "a/virtio-rng.ko": "virtio_rng", "zram.ko": "zram",
	} {
		if got := moduleName(path); got != want {
			t.Errorf("module name of %s = %s, want %s", path, got, want)
		}
	}
	if _, err := moduleDepends([]byte("no module")); err == nil {
		t.Error("a text file is accepted as a module, want no module")
	}
}
