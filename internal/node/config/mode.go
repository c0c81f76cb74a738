package config

// Mode is whether something is done or only observed that a kubelet on the node may do as well.
type Mode string

// The modes.
const (
	ModeUnset   Mode = ""        // as ModeAct, but beside a kubelet as ModeObserve
	ModeAct     Mode = "act"     // whatever else runs on the node
	ModeObserve Mode = "observe" // never
)

// modes are what a file may set.
var modes = []string{string(ModeAct), string(ModeObserve), string(ModeUnset)}

// Acts tells that something is done, with or without a kubelet on the node.
func (m Mode) Acts(kubelet bool) bool { return m == ModeAct || m == ModeUnset && !kubelet }

// Resolve is ModeAct or ModeObserve: what the mode comes to, with or without a kubelet on the node.
func (m Mode) Resolve(kubelet bool) Mode {
	if m.Acts(kubelet) {
		return ModeAct
	}
	return ModeObserve
}
