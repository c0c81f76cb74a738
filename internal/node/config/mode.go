package config

// Mode selects whether the agent does work that a kubelet on the node may do as well.
type Mode string

// The modes.
const (
	ModeUnset   Mode = ""        // ModeObserve on a node with a kubelet, else ModeAct
	ModeAct     Mode = "act"     // act, also on a node with a kubelet
	ModeObserve Mode = "observe" // only observe
)

// modes are the values that a file may set.
var modes = []string{string(ModeAct), string(ModeObserve), string(ModeUnset)}

// Acts reports whether the agent does the work, on a node with or without a kubelet.
func (m Mode) Acts(kubelet bool) bool { return m == ModeAct || m == ModeUnset && !kubelet }

// Resolve returns ModeAct or ModeObserve, for a node with or without a kubelet.
func (m Mode) Resolve(kubelet bool) Mode {
	if m.Acts(kubelet) {
		return ModeAct
	}
	return ModeObserve
}
