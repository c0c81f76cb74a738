package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// flagKind is the syntax of a flag's value.
type flagKind uint8

const (
	flagText   flagKind = iota
	flagPath            // relative to the working directory
	flagBool            // without a value it is true
	flagList            // a,b
	flagBelow           // signal<value,signal<value
	flagPairs           // key=value,key=value
	flagTaints          // key=value:effect,key:effect
)

// kubeletFlags are the kubelet's flags that set fields, and override files (k8s.io/kubernetes
// cmd/kubelet/app/options/options.go AddKubeletConfigFlags, v1.37). The agent ignores all others.
var kubeletFlags = map[string]struct {
	field string
	kind  flagKind
}{
	"eviction-hard":                         {"evictionHard", flagBelow},
	"eviction-soft":                         {"evictionSoft", flagBelow},
	"eviction-soft-grace-period":            {"evictionSoftGracePeriod", flagPairs},
	"eviction-minimum-reclaim":              {"evictionMinimumReclaim", flagPairs},
	"eviction-pressure-transition-period":   {"evictionPressureTransitionPeriod", flagText},
	"eviction-max-pod-grace-period":         {"evictionMaxPodGracePeriod", flagText},
	"image-gc-high-threshold":               {"imageGCHighThresholdPercent", flagText},
	"image-gc-low-threshold":                {"imageGCLowThresholdPercent", flagText},
	"minimum-image-ttl-duration":            {"imageMinimumGCAge", flagText},
	"enforce-node-allocatable":              {"enforceNodeAllocatable", flagList},
	"kube-reserved":                         {"kubeReserved", flagPairs},
	"system-reserved":                       {"systemReserved", flagPairs},
	"allowed-unsafe-sysctls":                {"allowedUnsafeSysctls", flagList},
	"register-with-taints":                  {"registerWithTaints", flagTaints},
	"max-pods":                              {"maxPods", flagText},
	"pods-per-core":                         {"podsPerCore", flagText},
	"local-storage-capacity-isolation":      {"localStorageCapacityIsolation", flagBool},
	"container-runtime-endpoint":            {"containerRuntimeEndpoint", flagText},
	"image-service-endpoint":                {"imageServiceEndpoint", flagText},
	"pod-manifest-path":                     {"staticPodPath", flagPath},
	"cgroup-root":                           {"cgroupRoot", flagText},
	"cgroup-driver":                         {"cgroupDriver", flagText},
	"container-log-max-size":                {"containerLogMaxSize", flagText},
	"container-log-max-files":               {"containerLogMaxFiles", flagText},
	"config":                                {"", flagPath},
	"config-dir":                            {"", flagPath},
	"root-dir":                              {"", flagPath},
	"minimum-container-ttl-duration":        {"", flagText},
	"maximum-dead-containers":               {"", flagText},
	"maximum-dead-containers-per-container": {"", flagText},
}

// commandLine has the values of a kubelet's flags.
type commandLine struct {
	fields      *yaml.Node        // a mapping
	other       map[string]string // last values of flags that set no field of the kubelet's file, by flag
	used        []string          // flags that set fields, each once
	flagOf      map[string]string // flag by the field of the kubelet's file that it sets
	otherFlagOf map[string]string // flag by the other field that it sets
}

// parseFlags parses a kubelet's command line as the kubelet does: "--name=value" or "--name value",
// with "_" accepted for "-". dir is the kubelet's working directory.
func parseFlags(args []string, dir string) (commandLine, error) {
	c := commandLine{fields: &yaml.Node{Kind: yaml.MappingNode}, other: map[string]string{},
		flagOf: map[string]string{}}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			break
		}
		name, value, has := strings.Cut(arg, "=")
		name, long := strings.CutPrefix(name, "--")
		name = strings.ReplaceAll(name, "_", "-")
		f, known := kubeletFlags[name]
		takes := len(args) > 0 && !strings.HasPrefix(args[0], "-") || known && len(args) > 0
		// The next argument is the value, unless it is a flag.
		if strings.HasPrefix(arg, "-") && !has && f.kind != flagBool && takes {
			value, args = args[0], args[1:]
		}
		if !long || !known {
			continue
		}
		if f.kind == flagBool && !has {
			value = "true"
		}
		if f.kind == flagPath && value != "" && !filepath.IsAbs(value) {
			value = filepath.Join(dir, value)
		}
		if f.field == "" {
			c.other[name] = value
			continue
		}
		if valueOf(c.fields, f.field) == nil {
			c.used = append(c.used, "--"+name)
		}
		c.flagOf[f.field] = "--" + name
		if err := c.set(f.field, f.kind, value); err != nil {
			return c, fmt.Errorf("--%s %.200q: %w", name, value, err)
		}
	}
	return c, nil
}

// set sets a field. Repeated flags add to maps and lists (k8s.io/component-base cli/flag); taints
// are replaced by the last flag.
func (c *commandLine) set(field string, kind flagKind, value string) error {
	switch kind {
	case flagList:
		list := valueOf(c.fields, field)
		if list == nil {
			list = &yaml.Node{Kind: yaml.SequenceNode, Line: 1}
			setKey(c.fields, field, list)
		}
		for part := range strings.SplitSeq(value, ",") {
			if part != "" {
				list.Content = append(list.Content, stringNode(part))
			}
		}
	case flagTaints:
		list, err := taintsOf(value)
		setKey(c.fields, field, list)
		return err
	case flagBelow, flagPairs:
		pairs := valueOf(c.fields, field)
		if pairs == nil {
			pairs = &yaml.Node{Kind: yaml.MappingNode, Line: 1}
			setKey(c.fields, field, pairs)
		}
		by := map[flagKind]string{flagBelow: "<", flagPairs: "="}[kind]
		for part := range strings.SplitSeq(value, ",") {
			if part == "" {
				continue
			}
			key, v, ok := strings.Cut(part, by)
			if !ok {
				return fmt.Errorf("want KEY%sVALUE, separated by commas", by)
			}
			setKey(pairs, strings.TrimSpace(key), stringNode(strings.TrimSpace(v)))
		}
	default:
		setKey(c.fields, field, scalarNode(value)) // YAML resolves numbers and booleans
	}
	return nil
}

// taintsOf parses the taints of a flag (pkg/util/taints ParseTaints). Their form is checked later,
// as in a file. A taint that ends in - is to be removed, which has no effect here.
func taintsOf(value string) (*yaml.Node, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode, Line: 1}
	for part := range strings.SplitSeq(value, ",") {
		if value == "" || strings.HasSuffix(part, "-") {
			continue
		}
		of, effect, _ := strings.Cut(part, ":")
		key, v, _ := strings.Cut(of, "=")
		if strings.Contains(effect, ":") || strings.Contains(v, "=") {
			return list, fmt.Errorf("invalid taint spec: %.200s", part)
		}
		taint := &yaml.Node{Kind: yaml.MappingNode, Line: 1}
		setKey(taint, "key", stringNode(key))
		setKey(taint, "value", stringNode(v))
		setKey(taint, "effect", stringNode(effect))
		list.Content = append(list.Content, taint)
	}
	return list, nil
}

func stringNode(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Line: 1}
}

// finish sets the fields that only flags can set, and notes these flags.
func (c *commandLine) finish(into *Config) error {
	c.otherFlagOf = map[string]string{}
	if dir := c.other["root-dir"]; dir != "" {
		into.RootDir, c.otherFlagOf["rootDir"] = dir, "--root-dir"
	}
	if age, ok := c.other["minimum-container-ttl-duration"]; ok {
		d, err := time.ParseDuration(age)
		if err != nil {
			return fmt.Errorf(`--minimum-container-ttl-duration %.200q: want a duration such as "1m30s"`, age)
		}
		into.ContainerGC.MinAge, c.otherFlagOf["containerGC: minAge"] = Duration(d),
			"--minimum-container-ttl-duration"
	}
	for _, f := range []struct {
		name, key string
		field     *int32
	}{
		{"maximum-dead-containers", "maxContainers", &into.ContainerGC.MaxContainers},
		{"maximum-dead-containers-per-container", "maxPerPodContainer",
			&into.ContainerGC.MaxPerPodContainer},
	} {
		if number, ok := c.other[f.name]; ok {
			n, err := strconv.ParseInt(number, 0, 32)
			if err != nil {
				return fmt.Errorf("--%s %.200q: want a whole number of at most 32 bits", f.name, number)
			}
			*f.field, c.otherFlagOf["containerGC: "+f.key] = int32(n), "--"+f.name
		}
	}
	return nil
}
