package vm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Modules that the initramfs needs to reach the disk, and that the node needs afterwards. Kernel
// versions differ in the modules they build in. Dependencies are read from the modules themselves.
var (
	diskModules = []string{"virtio_pci", "virtio_blk"}
	// lzo_rle: zram of 6.1 requests it by name through modprobe, which the guest does not have.
	nodeModules = []string{"overlay", "virtio_net", "veth", "bridge", "lzo_rle", "zram", "fuse", "loop", "quota_v2"}
)

// moduleName returns the kernel's own spelling of a name: file names mix - and _.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	return strings.ReplaceAll(name, "-", "_")
}

// moduleTree is /lib/modules/VERSION of an unpacked kernel package.
type moduleTree struct {
	files   map[string]string // module name to its file
	builtin map[string]bool
}

func readModuleTree(root string) (*moduleTree, error) {
	t := &moduleTree{files: map[string]string{}, builtin: map[string]bool{}}
	list, err := os.ReadFile(filepath.Join(root, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(list)) {
		t.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	return t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && (strings.HasSuffix(path, ".ko") || strings.HasSuffix(path, ".ko.xz")) {
			t.files[moduleName(path)] = path
		}
		return err
	})
}

// unpack writes the modules and all their dependencies into a folder, uncompressed. It returns
// their file names in load order.
func (t *moduleTree) unpack(names []string, into string) (order []string, err error) {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return nil, err
	}
	done := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		if done[name] || t.builtin[name] {
			return nil
		}
		done[name] = true
		path, ok := t.files[name]
		if !ok {
			return fmt.Errorf("kernel module %s: neither built in nor packaged", name)
		}
		content, err := readModule(path)
		if err != nil {
			return err
		}
		needs, err := moduleDepends(content)
		if err != nil {
			return fmt.Errorf("kernel module %s: %w", path, err)
		}
		for _, n := range needs {
			if err := visit(n); err != nil {
				return err
			}
		}
		order = append(order, name+".ko")
		return os.WriteFile(filepath.Join(into, name+".ko"), content, 0o644)
	}
	for _, name := range names {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

func readModule(path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".xz") {
		return os.ReadFile(path)
	}
	out, err := exec.Command("xz", "-dc", path).Output()
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", path, err)
	}
	return out, nil
}

// moduleDepends reads "depends=a,b" from a module's .modinfo section (linux/module.h, MODULE_INFO).
func moduleDepends(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(field), "depends="); ok && list != "" {
			var names []string
			for n := range strings.SplitSeq(list, ",") {
				names = append(names, moduleName(n))
			}
			return names, nil
		}
	}
	return nil, nil
}
