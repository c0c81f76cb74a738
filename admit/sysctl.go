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

// reasonSysctl rejects a pod that sets a forbidden sysctl (pkg/kubelet/sysctl/allowlist.go).
const reasonSysctl = "SysctlForbidden"

// safeSysctls are always allowed: they are namespaced and do not affect other pods
// (pkg/kubelet/sysctl/safe_sysctls.go). The kubelet omits sysctls that an older kernel, before
// 4.15, does not namespace. The agent always runs on a newer kernel, because it requires the memory
// controller of cgroup v2.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
	"net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports",
	"net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem",
	"net.ipv4.tcp_wmem", "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat",
}

// Syntax and maximum length of a sysctl pattern (pkg/apis/policy/validation IsValidSysctlPattern).
const (
	sysctlPattern   = `([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]`
	sysctlMaxLength = 253
)

// Sysctls holds the sysctls that pods may set.
type Sysctls struct {
	names            map[string]sysctl.Namespace
	prefixes         []string // in any order: if several match a name, they have the same namespace
	prefixNamespaces map[string]sysctl.Namespace
}

// NewSysctls returns the safe sysctls and the configured ones (the kubelet's allowedUnsafeSysctls):
// names, or patterns that end in *. Its errors are the kubelet's.
func NewSysctls(allowedUnsafe []string) (*Sysctls, error) {
	out := &Sysctls{names: map[string]sysctl.Namespace{},
		prefixNamespaces: map[string]sysctl.Namespace{}}
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
			out.prefixNamespaces[name], out.prefixes = ns, append(out.prefixes, name)
		default:
			out.names[name] = ns
		}
	}
	return out, nil
}

// maxForbidden limits the reported sysctls of one pod, because each may become a log line.
const maxForbidden = 10

// appendForbidden appends a failure for each sysctl that a pod may not set, up to maxForbidden. A
// nil list forbids no sysctl.
func (s *Sysctls) appendForbidden(out []Failure, pod *v1.Pod) []Failure {
	if s == nil || pod.Spec.SecurityContext == nil {
		return out
	}
	limit := len(out) + maxForbidden
	for i := range pod.Spec.SecurityContext.Sysctls {
		if len(out) == limit {
			break
		}
		if why := s.forbiddenReason(&pod.Spec, pod.Spec.SecurityContext.Sysctls[i].Name); why != "" {
			out = append(out, Failure{Reason: reasonSysctl, Message: "forbidden sysctl: " + why})
		}
	}
	return out
}

// forbiddenReason returns why a pod may not set a sysctl: the sysctl is not in the list, or the pod
// uses the host's namespace for it, as it does with the user namespace by default. It returns "" if
// the pod may set the sysctl.
func (s *Sysctls) forbiddenReason(spec *v1.PodSpec, name string) string {
	name = sysctl.NormalizeName(name)
	ns, ok := s.names[name]
	if !ok {
		i := slices.IndexFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if i < 0 {
			return fmt.Sprintf("%.*q not allowlisted", sysctlMaxLength, name)
		}
		ns = s.prefixNamespaces[s.prefixes[i]]
	}
	hostUsers := spec.HostUsers == nil || *spec.HostUsers
	if ns == sysctl.IPCNamespace && spec.HostIPC || ns == sysctl.NetNamespace && spec.HostNetwork ||
		ns == sysctl.UserNamespace && hostUsers {
		return fmt.Sprintf("%q not allowed with host %s enabled", name, ns)
	}
	return ""
}
