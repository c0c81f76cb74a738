package admit

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
)

// reasonSysctl is why a pod is refused that sets a sysctl which is not allowed
// (pkg/kubelet/sysctl/allowlist.go).
const reasonSysctl = "SysctlForbidden"

// safeSysctls are always allowed: they are namespaced, and no other pod feels them
// (pkg/kubelet/sysctl/safe_sysctls.go). The kubelet leaves out those that a kernel before 4.15 does
// not have in namespaces; a kernel with the memory controller of cgroup v2 that the agent needs is
// newer.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
	"net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports",
	"net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem",
	"net.ipv4.tcp_wmem",
}

// A pattern of sysctls (pkg/apis/policy/validation IsValidSysctlPattern).
const (
	sysctlPattern   = `([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]`
	sysctlMaxLength = 253
)

// Sysctls are those that pods may set.
type Sysctls struct {
	names    map[string]sysctl.Namespace
	prefixes []string // of names that two of them fit the namespace is the same
	of       map[string]sysctl.Namespace
}

// NewSysctls allows the safe sysctls and those that the configuration does (the kubelet's
// allowedUnsafeSysctls): names, or patterns that end in *. The error is the kubelet's.
func NewSysctls(allowedUnsafe []string) (*Sysctls, error) {
	out := &Sysctls{names: map[string]sysctl.Namespace{}, of: map[string]sysctl.Namespace{}}
	valid := regexp.MustCompile("^" + sysctlPattern + "$")
	for _, s := range slices.Concat(safeSysctls, allowedUnsafe) {
		if len(s) > sysctlMaxLength || !valid.MatchString(s) {
			return nil, fmt.Errorf("sysctl %q must have at most %d characters and match regex %s", s,
				sysctlMaxLength, sysctlPattern)
		}
		ns, name, prefixed := sysctl.GetNamespace(s)
		switch {
		case ns == sysctl.UnknownNamespace:
			return nil, fmt.Errorf("the sysctls %q are not known to be namespaced", cmp.Or(name, s))
		case prefixed:
			out.of[name], out.prefixes = ns, append(out.prefixes, name)
		default:
			out.names[name] = ns
		}
	}
	return out, nil
}

// maxForbidden is how many forbidden sysctls are told of: a pod may name a lot, and each is a line
// of somebody's log.
const maxForbidden = 10

// forbid adds a failure for each sysctl that a pod may not set, up to maxForbidden. A nil list
// forbids nothing.
func (s *Sysctls) forbid(out []Failure, pod *v1.Pod) []Failure {
	if s == nil || pod.Spec.SecurityContext == nil {
		return out
	}
	told := len(out) + maxForbidden
	for i := range pod.Spec.SecurityContext.Sysctls {
		if len(out) == told {
			break
		}
		if why := s.against(&pod.Spec, pod.Spec.SecurityContext.Sysctls[i].Name); why != "" {
			out = append(out, Failure{Reason: reasonSysctl, Message: "forbidden sysctl: " + why})
		}
	}
	return out
}

// against says why a pod may not set a sysctl: it is not in the list, or the pod has no namespace
// of its own for it.
func (s *Sysctls) against(spec *v1.PodSpec, name string) string {
	name = sysctl.NormalizeName(name)
	ns, ok := s.names[name]
	if !ok {
		i := slices.IndexFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if i < 0 {
			return fmt.Sprintf("%.*q not allowlisted", sysctlMaxLength, name)
		}
		ns = s.of[s.prefixes[i]]
	}
	if ns == sysctl.IPCNamespace && spec.HostIPC || ns == sysctl.NetNamespace && spec.HostNetwork {
		return fmt.Sprintf("%q not allowed with host %s enabled", name, ns)
	}
	return ""
}
