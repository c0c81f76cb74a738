package spec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateContainers checks all containers of a pod.
func validateContainers(p *v1.Pod, path *field.Path) (errs field.ErrorList) {
	s := &p.Spec
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	names := map[string]bool{}
	for i := range s.Containers {
		at := path.Child("containers").Index(i)
		errs = append(errs, validateContainer(&s.Containers[i], names, at)...)
		errs = append(errs, validateLifecycle(s.Containers[i].Lifecycle, s, at.Child("lifecycle"))...)
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		at := path.Child("initContainers").Index(i)
		errs = append(errs, validateContainer(c, names, at)...)
		if isSidecar(c) {
			errs = append(errs, validateLifecycle(c.Lifecycle, s, at.Child("lifecycle"))...)
		} else if c.Lifecycle != nil {
			errs = append(errs, field.Forbidden(at.Child("lifecycle"), "only for init containers with "+
				"restartPolicy Always"))
		}
	}
	return errs
}

func isSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// validateContainer checks a container of any kind. names has the names of those before it.
func validateContainer(c *v1.Container, names map[string]bool,
	path *field.Path) (errs field.ErrorList) {
	name := path.Child("name")
	for _, message := range validation.IsDNS1123Label(c.Name) {
		if c.Name != "" {
			errs = append(errs, field.Invalid(name, c.Name, message))
		}
	}
	if c.Name == "" {
		errs = append(errs, field.Required(name, ""))
	}
	if names[c.Name] {
		errs = append(errs, field.Duplicate(name, c.Name))
	}
	names[c.Name] = true
	switch image := path.Child("image"); {
	case c.Image == "":
		errs = append(errs, field.Required(image, ""))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(image, c.Image, "spaces around the name"))
	}
	errs = append(errs, oneOf(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, oneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways,
		v1.PullIfNotPresent, v1.PullNever)...)
	errs = append(errs, validatePorts(c.Ports, path.Child("ports"))...)
	for i := range c.Env {
		if at := path.Child("env").Index(i).Child("name"); c.Env[i].Name == "" {
			errs = append(errs, field.Required(at, ""))
		} else {
			errs = append(errs, invalid(at, c.Env[i].Name, validation.IsRelaxedEnvVarName)...)
		}
	}
	errs = append(errs, validateResources(&c.Resources, false, path.Child("resources"))...)
	return append(errs, validateRestartRules(c, path)...)
}

// invalid returns an error for each message of a check.
func invalid(path *field.Path, value string, check func(string) []string) (errs field.ErrorList) {
	for _, message := range check(value) {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

func validatePorts(ports []v1.ContainerPort, path *field.Path) (errs field.ErrorList) {
	names := map[string]bool{}
	for i := range ports {
		p, at := &ports[i], path.Index(i)
		if p.Name != "" {
			wrong := invalid(at.Child("name"), p.Name, validation.IsValidPortName)
			if len(wrong) == 0 && names[p.Name] {
				wrong = field.ErrorList{field.Duplicate(at.Child("name"), p.Name)}
			}
			names[p.Name] = true
			errs = append(errs, wrong...)
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, validatePort(intstr.FromInt32(p.ContainerPort), at.Child("containerPort"))...)
		}
		errs = append(errs, oneOf(at.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP,
			v1.ProtocolSCTP)...)
	}
	return errs
}

// validatePort checks the number or the name of a port.
func validatePort(port intstr.IntOrString, path *field.Path) (errs field.ErrorList) {
	if port.Type == intstr.String {
		return invalid(path, port.StrVal, validation.IsValidPortName)
	}
	for _, message := range validation.IsValidPortNum(port.IntValue()) {
		errs = append(errs, field.Invalid(path, port.IntValue(), message))
	}
	return errs
}

const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

// validateRestartRules checks a container's own restart policy and its rules.
func validateRestartRules(c *v1.Container, path *field.Path) (errs field.ErrorList) {
	policy, rules := path.Child("restartPolicy"), path.Child("restartPolicyRules")
	switch {
	case c.RestartPolicy == nil && len(c.RestartPolicyRules) == 0:
		return nil
	case c.RestartPolicy == nil:
		errs = append(errs, field.Required(policy, "rules need a restart policy of the container"))
	default:
		errs = append(errs, oneOf(policy, *c.RestartPolicy, v1.ContainerRestartPolicyAlways,
			v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)...)
	}
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		errs = append(errs, field.TooMany(rules, n, maxRestartRules))
	}
	for i := range c.RestartPolicyRules {
		rule, at := &c.RestartPolicyRules[i], rules.Index(i)
		errs = append(errs, oneOf(at.Child("action"), rule.Action,
			v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)...)
		if rule.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), ""))
			continue
		}
		errs = append(errs, oneOf(at.Child("exitCodes", "operator"), rule.ExitCodes.Operator,
			v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(rule.ExitCodes.Values); n > maxExitCodes {
			errs = append(errs, field.TooMany(at.Child("exitCodes", "values"), n, maxExitCodes))
		}
	}
	return errs
}

func validateLifecycle(l *v1.Lifecycle, s *v1.PodSpec, path *field.Path) (errs field.ErrorList) {
	if l == nil {
		return nil
	}
	for _, h := range []struct {
		name string
		of   *v1.LifecycleHandler
	}{{"postStart", l.PostStart}, {"preStop", l.PreStop}} {
		if h.of != nil {
			errs = append(errs, validateHandler(h.of, *s.TerminationGracePeriodSeconds,
				path.Child(h.name))...)
		}
	}
	return errs
}

// validateHandler checks a hook. Of several handlers only the first is checked.
func validateHandler(h *v1.LifecycleHandler, grace int64, path *field.Path) (errs field.ErrorList) {
	count := 0
	for _, kind := range []struct {
		name  string
		set   bool
		check func(*field.Path) field.ErrorList
	}{
		{"exec", h.Exec != nil, func(at *field.Path) field.ErrorList {
			if len(h.Exec.Command) > 0 {
				return nil
			}
			return field.ErrorList{field.Required(at.Child("command"), "")}
		}},
		{"httpGet", h.HTTPGet != nil, func(at *field.Path) field.ErrorList {
			return validateHTTPGet(h.HTTPGet, at)
		}},
		{"sleep", h.Sleep != nil, func(at *field.Path) field.ErrorList {
			if h.Sleep.Seconds >= 0 && h.Sleep.Seconds <= grace {
				return nil
			}
			return field.ErrorList{field.Invalid(at, h.Sleep.Seconds, validation.InclusiveRangeError(0,
				int(grace)))}
		}},
	} {
		if !kind.set {
			continue
		}
		if count++; count > 1 {
			errs = append(errs, field.Forbidden(path.Child(kind.name), "more than one handler"))
			continue
		}
		errs = append(errs, kind.check(path.Child(kind.name))...)
	}
	if count == 0 {
		errs = append(errs, field.Required(path, "want exec, httpGet or sleep"))
	}
	return errs
}

func validateHTTPGet(h *v1.HTTPGetAction, path *field.Path) field.ErrorList {
	errs := validatePort(h.Port, path.Child("port"))
	errs = append(errs, oneOf(path.Child("scheme"), h.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)...)
	for i := range h.HTTPHeaders {
		errs = append(errs, invalid(path.Child("httpHeaders"), h.HTTPHeaders[i].Name,
			validation.IsHTTPHeaderName)...)
	}
	return errs
}
