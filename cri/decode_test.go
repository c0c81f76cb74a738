package cri

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"
)

// Output of containerd 2.4, reduced to the needed fields and some others.
const containerdSandbox = `{"pid":4242,"processStatus":"running","netNamespaceClosed":false,"image":"pause","snapshotter":"overlayfs",
"config":{"metadata":{"name":"web","uid":"u","namespace":"default"},"linux":{"cgroup_parent":"/kubepods/burstable/podu",
"security_context":{"namespace_options":{"pid":1}},"overhead":{},
"resources":{"cpu_period":100000,"cpu_quota":50000,"cpu_shares":512,"memory_limit_in_bytes":1073741824,"unified":{"memory.low":"7"}}}},
"runtimeSpec":{"ociVersion":"1.2.1","process":{"oomScoreAdj":-998},"linux":{"cgroupsPath":"/kubepods/burstable/podu/s1",
"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"network","path":"/var/run/netns/cni-1"}]}},
"cniResult":{"Interfaces":{"eth0":null}},"sandboxMetadata":{"Version":"v1"}}`

// Output of CRI-O: the OCI spec without a config.
const crioContainer = `{"sandboxID":"s0","pid":4343,"runtimeSpec":{"ociVersion":"1.2.0","process":{"oomScoreAdj":934,"args":["x"]},
"linux":{"cgroupsPath":"kubepods-burstable-podu.slice:crio:c1","resources":{"memory":{"limit":4096},"cpu":{"shares":512,"quota":50000,"period":100000},
"unified":{"memory.high":"9"}}}},"privileged":false}`

func FuzzParseVerbose(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", "no JSON", "{}", containerdSandbox, crioContainer,
		`{"pid":"4","config":{"linux":{"cgroup_parent":"/p","resources":{"memory_limit_in_bytes":-1,"oom_score_adj":12}}}}`,
		`{"pid":-1,"resources":null,"runtimeSpec":{"linux":{"namespaces":[null,{"type":"network","path":"a\u0000b/../c"}],"resources":{"cpu":null,"memory":{"limit":9223372036854775807}}}}}`,
		`{"pid":1e30,"runtimeSpec":{"process":{"oomScoreAdj":1e3},"linux":{"resources":{"memory":{"limit":18446744073709551615}}}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, info string) {
		of := map[string]string{"info": info}
		s := sandboxDetailOf(&runtimev1.PodSandboxStatusResponse{Info: of})
		c := containerDetailOf(&runtimev1.ContainerStatusResponse{Info: of})
		for _, pid := range []int{s.pid, c.pid} {
			if pid < 0 || pid > maxPID {
				t.Errorf("decoded PID = %d, out of range", pid)
			}
		}
		possible(t, c.resources)
	})
}

// possible reports impossible limits.
func possible(t interface{ Errorf(string, ...any) }, l resources) {
	for _, n := range []*uint64{l.memory, l.cpuShares} {
		if n != nil && (*n == 0 || *n >= math.MaxInt64) {
			t.Errorf("decoded an impossible container limit: %d", *n)
		}
	}
}

// A field of the wrong type, or a number that does not fit, is absent by itself.
func TestVerboseFieldsAreIndependent(t *testing.T) {
	v := parseVerbose(map[string]string{"info": `{"pid":"x","config":{"linux":{"cgroup_parent":"/p"}},"runtimeSpec":{"process":{"oomScoreAdj":7},"linux":{"resources":{"memory":{"limit":18446744073709551615},"cpu":{"shares":2}}}}}`})
	l := v.containerResources(nil)
	if v.pid() != 0 || v.Config.Linux.CgroupParent != "/p" || *v.RuntimeSpec.Process.OOMScoreAdj != 7 || l.memory != nil || *l.cpuShares != 2 {
		t.Errorf("verbose status = %+v, resources %+v, want the valid fields", v, l)
	}
}

// The current limit of the status replaces the one from the creation of the container.
func TestLatestLimitWins(t *testing.T) {
	v := parseVerbose(map[string]string{"info": `{"config":{"linux":{"resources":{"memory_limit_in_bytes":1,"cpu_shares":2,"cpu_quota":3,"unified":{"a":"config"}}}},
"runtimeSpec":{"linux":{"resources":{"memory":{"limit":11},"cpu":{"shares":12},"unified":{"a":"spec"}}}}}`})
	l := v.containerResources(&runtimev1.LinuxContainerResources{MemoryLimitInBytes: 21, CpuShares: -5})
	if *l.memory != 21 || *l.cpuShares != 12 || l.unified["a"] != "spec" {
		t.Errorf("resources = %+v, want those of the status", l)
	}
}

// Every valid message decodes: absent parts, extreme numbers, any text.
func TestEveryMessageDecodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if s := sandboxOf(random(t, &runtimev1.PodSandbox{})); s.CreatedAt.UnixNano() < 0 && !s.CreatedAt.IsZero() {
			t.Errorf("sandbox with a creation time before 1970: %v", s.CreatedAt)
		}
		containerOf(random(t, &runtimev1.Container{}))
		if i := imageOf(random(t, &runtimev1.Image{})); i.Size > math.MaxInt64 {
			t.Errorf("image with an impossible size: %d bytes", i.Size)
		}
		status := random(t, &runtimev1.ContainerStatusResponse{})
		status.Info = map[string]string{"info": rapid.SampledFrom([]string{"", crioContainer, containerdSandbox}).Draw(t, "info")}
		containerStatusOf(status)
		possible(t, containerDetailOf(status).resources)
		sandboxDetailOf(random(t, &runtimev1.PodSandboxStatusResponse{}))
		for _, u := range usagesOf(random(t, &runtimev1.ImageFsInfoResponse{}).GetImageFilesystems()) {
			if u.UsedBytes != nil && *u.UsedBytes > math.MaxInt64 {
				t.Errorf("impossible usage decoded: %d bytes", *u.UsedBytes)
			}
		}
		containerStatsOf(random(t, &runtimev1.ContainerStats{}))
	})
}

// Nil messages decode without a panic.
func TestNilDecodes(t *testing.T) {
	sandboxOf(nil)
	containerOf(nil)
	imageOf(nil)
	containerStatusOf(nil)
	sandboxDetailOf(nil)
	usagesOf([]*runtimev1.FilesystemUsage{nil})
	containerStatsOf(nil)
	var none answer[Container]
	if err := none.decode(nil); err != nil || len(none.items) != 0 {
		t.Errorf("items of an empty message = %v, %v, want none", none.items, err)
	}
}

// random fills some fields of a message, encodes it, and returns the decoded message.
func random[M proto.Message](t *rapid.T, m M) M {
	fill(t, m.ProtoReflect(), 0)
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	proto.Reset(m)
	if err := proto.Unmarshal(wire, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func fill(t *rapid.T, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !rapid.Bool().Draw(t, "set") {
			continue
		}
		switch {
		case f.IsMap():
			if f.MapKey().Kind() == protoreflect.StringKind && f.MapValue().Kind() == protoreflect.StringKind {
				m.Mutable(f).Map().Set(value(t, f.MapKey()).MapKey(), value(t, f.MapValue()))
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range rapid.IntRange(0, 2).Draw(t, "items") {
				if f.Message() == nil {
					list.Append(value(t, f))
				} else if item := list.AppendMutable().Message(); depth < 4 {
					fill(t, item, depth+1)
				}
			}
		case f.Message() != nil:
			if inner := m.Mutable(f).Message(); depth < 4 {
				fill(t, inner, depth+1)
			}
		default:
			m.Set(f, value(t, f))
		}
	}
}

// value draws a scalar, often one at the end of its range.
func value(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32().Draw(t, "enum")))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "int32"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, "uint32"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "int64"))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, "uint64"))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.SampledFrom([]string{"", "a", "\x00", "../..", "/", "kubepods.slice:x:y", "\u2028"}).Draw(t, "string"))
	}
	return f.Default()
}
