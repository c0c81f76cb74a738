package eviction

import "testing"

// A text that would keep the parser busy for minutes is refused at once; what a kubelet takes is taken.
func TestQuantities(t *testing.T) {
	for text, ok := range map[string]bool{
		"100Mi": true, "1E": true, "1Ei": true, "1e3": true, "1E3": true, "12e-2": true, "1e400": true, "0.5": true, "-1": true,
		"1e-99990000": false, "1E99999999": false, "1e99999999999999999999999": false, "": false, "1e": false, "e": false, "1e+1001": false,
	} {
		q, err := parseQuantity(text)
		if (err == nil) != ok {
			t.Errorf("%q: %s, %v", text, q.String(), err)
		}
	}
	long := make([]byte, 1<<20)
	for i := range long {
		long[i] = '9'
	}
	if _, err := parseQuantity(string(long)); err == nil {
		t.Error("a million digits are taken")
	}
}
