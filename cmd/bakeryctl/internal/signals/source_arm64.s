#include "textflag.h"

// func entry()
TEXT ·entry(SB), NOSPLIT|NOFRAME, $0
	MOVD $135, R8                // rt_sigprocmask(0, nil, &started.mask, 8)
	MOVD $0, R0
	MOVD $0, R1
	MOVD $·started+8(SB), R2
	MOVD $8, R3
	SVC
	MOVD $·started+16(SB), R20
	MOVD $1, R19
next:
	MOVD $134, R8                // rt_sigaction(signal, nil, &started.actions[signal-1], 8)
	MOVD R19, R0
	MOVD $0, R1
	MOVD R20, R2
	MOVD $8, R3
	SVC
	ADD  $32, R20
	ADD  $1, R19
	CMP  $64, R19
	BLE  next
	MOVD $1, R0
	MOVD R0, ·started+0(SB)
	JMP  _rt0_arm64_linux(SB)

// func source()
TEXT ·source(SB), NOSPLIT|NOFRAME, $0
	MOVW 8(R1), R10              // si_code
	CMP  $0x80, R10              // SI_KERNEL
	BEQ  next
	MOVD $·fromProcess(SB), R9
	ADD  R0<<2, R9
	MOVD $1, R10
	MOVW R10, (R9)
next:
	MOVD ·runtimeHandler(SB), R9
	JMP  (R9)

GLOBL ·sourceHandler(SB), RODATA, $8
DATA ·sourceHandler(SB)/8, $·source(SB)
