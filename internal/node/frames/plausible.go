package frames

import (
	"reflect"

	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/stats"
)

// plausible removes from a frame that was made of a live look what a Reader would refuse: a broken
// counter must not make the whole recording unreadable. The decision core takes such figures for
// absent, too.
func plausible(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if cannotBe(v.Elem()) {
			v.SetZero()
			return
		}
		plausible(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				plausible(f)
			}
		}
		switch s := v.Addr().Interface().(type) {
		case *v1alpha1.MemoryStats:
			dropSum(&s.AvailableBytes, s.WorkingSetBytes)
		case *v1alpha1.SwapStats:
			dropSum(&s.SwapAvailableBytes, s.SwapUsageBytes)
		}
	case reflect.Slice:
		if k := v.Type().Elem().Kind(); k == reflect.Struct || k == reflect.Pointer {
			for i := range v.Len() {
				plausible(v.Index(i))
			}
		}
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.Pointer { // what is pointed to can be changed
			for i := v.MapRange(); i.Next(); {
				plausible(i.Value().Elem())
			}
		}
	}
}

// dropSum removes what is left where, with what is used, it is more than there can be.
func dropSum(left **uint64, used *uint64) {
	if *left != nil && used != nil && stats.SaturatingAdd(**left, *used) > most {
		*left = nil
	}
}

// cannotBe reports whether what a pointer points to cannot be true: a number, or a struct of
// numbers one of which cannot.
func cannotBe(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Uint64:
		return v.Uint() > most
	case reflect.Int64:
		return v.Int() < 0
	case reflect.Float64: // of a share
		return !(v.Float() >= 0 && v.Float() <= 1)
	case reflect.Struct:
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Uint64:
				if f.Uint() > most {
					return true
				}
			case reflect.Struct: // of pressure
				if f.NumField() == 4 && f.Field(1).Kind() == reflect.Float64 && isNoPressure(f) {
					return true
				}
			}
		}
	}
	return false
}

// isNoPressure: a total that cannot be, or an average that is no percentage (v1alpha1.PSIData).
func isNoPressure(v reflect.Value) bool {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Uint64:
			if f.Uint() > most {
				return true
			}
		case reflect.Float64:
			if !(f.Float() >= 0 && f.Float() <= 100) {
				return true
			}
		}
	}
	return false
}
