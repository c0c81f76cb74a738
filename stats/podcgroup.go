package stats

import "strings"

// PodCgroup holds the UID and QoS class encoded in the path of a pod's cgroup.
type PodCgroup struct {
	Path     string // below the root, without a leading slash
	UID      string
	QOSClass QOSClass
}

// ParsePodCgroup parses the last element of a pod cgroup's path, of either cgroup driver
// (kubelet pkg/kubelet/cm):
//
//	cgroupfs  kubepods/burstable/pod<uid>                      dir "kubepods/burstable"
//	systemd   kubepods.slice/.../kubepods-burstable-pod<uid with _ for ->.slice
//
// QOSClass comes from the parent. ok is false for any other cgroup.
func ParsePodCgroup(parent, name string) (p PodCgroup, ok bool) {
	p.Path = strings.Trim(parent+"/"+name, "/")
	base := parent[strings.LastIndexByte(parent, '/')+1:]
	if unit, isSlice := strings.CutSuffix(name, ".slice"); isSlice {
		at := strings.LastIndex(unit, "-pod") // a UID has no "-" in a unit's name, its parents may
		if at < 0 || strings.TrimSuffix(base, ".slice") != unit[:at] {
			return p, false
		}
		prefix := unit[:at]
		p.UID = strings.ReplaceAll(unit[at+len("-pod"):], "_", "-")
		base = prefix[strings.LastIndexByte(prefix, '-')+1:]
	} else if p.UID, ok = strings.CutPrefix(name, "pod"); !ok {
		return p, false
	}
	switch base {
	case "besteffort":
		p.QOSClass = BestEffort
	case "burstable":
		p.QOSClass = Burstable
	case "kubepods":
		p.QOSClass = Guaranteed
	}
	return p, p.UID != ""
}
