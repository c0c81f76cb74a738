package podindex

import (
	"strings"

	"github.com/opencontainers/cgroups/systemd"
)

// CgroupOfParent returns the path, below the root, of the cgroup that a CRI cgroup_parent names: a
// path with the cgroupfs driver, a slice name with systemd's. It returns "" for a malformed slice
// name.
func CgroupOfParent(parent string) string {
	if strings.HasSuffix(parent, ".slice") && !strings.Contains(strings.Trim(parent, "/"), "/") {
		path, err := systemd.ExpandSlice(strings.Trim(parent, "/"))
		if err != nil {
			return ""
		}
		return strings.Trim(path, "/")
	}
	return strings.Trim(parent, "/")
}

// PodRoots returns the cgroups with pods as children, below a kubelet's cgroupRoot, for both
// drivers. Only the cgroups of the driver in use exist.
func PodRoots(cgroupRoot string) []string {
	root := strings.Trim(cgroupRoot, "/")
	in := func(p string) string { return strings.Trim(root+"/"+p, "/") }
	roots := []string{in("kubepods"), in("kubepods/burstable"), in("kubepods/besteffort")}
	if root == "" {
		return append(roots, "kubepods.slice", "kubepods.slice/kubepods-burstable.slice",
			"kubepods.slice/kubepods-besteffort.slice")
	}
	// With systemd, cgroupRoot /a/b makes the slice a-b-kubepods.slice (kubelet cm
	// CgroupName.ToSystemd).
	escaped := strings.ReplaceAll(strings.ReplaceAll(root, "-", "_"), "/", "-")
	for _, leaf := range []string{"kubepods", "kubepods-burstable", "kubepods-besteffort"} {
		if p := CgroupOfParent(escaped + "-" + leaf + ".slice"); p != "" {
			roots = append(roots, p)
		}
	}
	return roots
}

// TopRoots returns the cgroups of PodRoots that are above all pods, one per driver.
func TopRoots(cgroupRoot string) []string {
	var top []string
	for _, r := range PodRoots(cgroupRoot) {
		base := strings.TrimSuffix(r[strings.LastIndexByte(r, '/')+1:], ".slice")
		if base == "kubepods" || strings.HasSuffix(base, "-kubepods") {
			top = append(top, r)
		}
	}
	return top
}

// Within reports whether path is the cgroup group or one of its descendants.
func Within(path, group string) bool {
	return path == group || len(path) > len(group) && path[len(group)] == '/' &&
		path[:len(group)] == group
}
