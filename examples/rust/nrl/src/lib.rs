//! Plugins for nrl in Rust, without bindgen and without other crates: the structs of the C headers that loggers and
//! algorithms need, the functions that they call, and macros that build and export a table.
//!
//! Names, members, threads and ownership are those of the headers, which document them. `src/bin/layouts.rs` prints the
//! size and the offsets of every struct here; a test compares them with those that C has (`tests/abi/layouts.txt`).
//! A panic must not cross into C: `guard` turns it into a status.

#![allow(non_camel_case_types)]

use std::ffi::CString;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};

pub const NRL_ABI: u32 = 3;
pub const NRL_BUILD: u32 = 4; // NRL_MAX_DIMS

pub const NRL_KIND_ALGORITHM: u32 = 1;
pub const NRL_KIND_LOGGER: u32 = 6;

pub const NRL_TYPE_INT: u32 = 1;
pub const NRL_TYPE_F64: u32 = 2;
pub const NRL_TYPE_BOOL: u32 = 3;
pub const NRL_TYPE_STR: u32 = 4;

pub const NRL_REDUCE_MEAN: u32 = 1;
pub const NRL_REDUCE_SUM: u32 = 2;
pub const NRL_REDUCE_MAX: u32 = 3;
pub const NRL_REDUCE_MIN: u32 = 4;
pub const NRL_BETTER_NONE: u32 = 0;
pub const NRL_BETTER_SMALLER: u32 = 1;
pub const NRL_BETTER_LARGER: u32 = 2;

pub const NRL_RECORD_TRAIN: u32 = 1;
pub const NRL_RECORD_EVAL: u32 = 2;

pub type nrl_status = i32;
pub const NRL_OK: nrl_status = 0;
pub const NRL_ERR_PLUGIN: nrl_status = 3;
pub const NRL_ERR_IO: nrl_status = 4;

pub const NRL_UNARY_NEG: u32 = 1;
pub const NRL_BINARY_MUL: u32 = 3;

/// Defines a struct of C and lists its members for `layouts`.
macro_rules! c_struct {
    ($name:ident { $($member:ident : $type:ty),* $(,)? }) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name { $(pub $member: $type),* }
        impl $name {
            /// "NAME SIZE" and "NAME.MEMBER OFFSET SIZE", as tests/abi/layouts.txt has them.
            pub fn layout(lines: &mut Vec<String>) {
                lines.push(format!("{} {}", stringify!($name), std::mem::size_of::<$name>()));
                // The struct is only measured: no member is read.
                let at = std::mem::MaybeUninit::<$name>::uninit();
                let base = at.as_ptr();
                $(
                    let member = unsafe { std::ptr::addr_of!((*base).$member) };
                    lines.push(format!("{}.{} {} {}", stringify!($name), stringify!($member).trim_start_matches("r#"),
                        member as usize - base as usize, std::mem::size_of::<$type>()));
                )*
            }
        }
    };
}

/// Opaque types.
pub enum nrl_ctx {}
pub enum nrl_tensor {}
pub enum nrl_batch {}
pub enum nrl_node {}
pub enum nrl_state_io {}

c_struct!(nrl_option {
    name: *const c_char, initial: *const c_char, choices: *const c_char, help: *const c_char,
    min: f64, max: f64, offset: u32, r#type: u32,
});
c_struct!(nrl_metric { name: *const c_char, unit: *const c_char, reduce: u32, better: u32 });
c_struct!(nrl_plugin {
    abi: u32, build: u32, kind: u32, size: u32, n_options: u32, option_size: u32, options_size: u32, priority: i32,
    name: *const c_char, version: *const c_char, summary: *const c_char, options: *const nrl_option,
    check: Option<unsafe extern "C" fn(*const c_void) -> nrl_status>,
    metrics: *const nrl_metric, reserved: [*const c_void; 3],
});
c_struct!(nrl_value { name: *const c_char, unit: *const c_char, value: f64 });
c_struct!(nrl_sample_text {
    prompt: *const c_char, text: *const c_char, answer: *const c_char, tokens: i64, index: i32, is_cut: bool,
    score: *mut f64,
});
c_struct!(nrl_record {
    size: u32, kind: u32, step: i64, total_steps: i64, time: f64, eta_seconds: f64, values: *const nrl_value,
    n_values: usize, samples: *const nrl_sample_text, n_samples: usize,
});
c_struct!(nrl_logger_run {
    size: u32, out: *const c_char, name: *const c_char, config: *const nrl_node, resumed_step: i64, total_steps: i64,
    terminal: bool, color: bool,
    claim: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> nrl_status>, claim_user: *mut c_void,
});
c_struct!(nrl_run_event {
    size: u32, kind: u32, step: i64, loss: f64, grad_norm: f64, lr: f64, epoch: f64, tokens: f64, tokens_per_s: f64,
    seconds: f64, skipped: bool, values: *const nrl_value, n_values: usize, text: *const c_char, path: *const c_char,
    plan: *const nrl_node, samples: *const nrl_sample_text, n_samples: usize,
});
c_struct!(nrl_logger {
    plugin: nrl_plugin,
    open: Option<unsafe extern "C" fn(*const c_void, *const nrl_logger_run, *mut *mut c_void) -> nrl_status>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const nrl_record) -> nrl_status>,
    close: Option<unsafe extern "C" fn(*mut c_void)>,
    event: Option<unsafe extern "C" fn(*mut c_void, *const nrl_run_event)>,
    on_terminal: bool,
});
c_struct!(nrl_algorithm {
    plugin: nrl_plugin, needs: *const *const c_char, metrics: *const nrl_metric, n_terms: u32, tokenwise: bool,
    example_kind: u32,
    create: Option<unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> nrl_status>,
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    weight: Option<unsafe extern "C" fn(*mut c_void, *const nrl_batch, *mut f64)>,
    loss: Option<unsafe extern "C" fn(*mut c_void, *mut nrl_ctx, *const nrl_batch, *mut *mut nrl_tensor) -> nrl_status>,
    step_end: Option<unsafe extern "C" fn(*mut c_void, *const f64, *const f64) -> nrl_status>,
    state: Option<unsafe extern "C" fn(*mut c_void, *mut nrl_state_io) -> nrl_status>,
    instance_needs: Option<unsafe extern "C" fn(*mut c_void) -> *const *const c_char>,
    initial_loss: Option<unsafe extern "C" fn(*mut c_void) -> f64>,
    group: Option<unsafe extern "C" fn(*mut c_void) -> i64>,
    detaches: Option<unsafe extern "C" fn(*mut c_void) -> bool>,
    model: Option<unsafe extern "C" fn(*mut c_void, *const c_void, *const c_void, *mut c_void) -> nrl_status>,
    bind: Option<unsafe extern "C" fn(*mut c_void, *const *mut c_void)>,
    rollout: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> nrl_status>, rollout_columns: *const *const c_char,
    best: *const nrl_metric,
    updates: Option<unsafe extern "C" fn(*mut c_void) -> i64>,
    couples: Option<unsafe extern "C" fn(*mut c_void) -> bool>,
    instance_metrics: Option<unsafe extern "C" fn(*mut c_void) -> *const nrl_metric>,
    open: Option<unsafe extern "C" fn(*mut c_void, *const c_void) -> nrl_status>,
});

/// Tables hold pointers to constants.
unsafe impl Sync for nrl_logger {}
unsafe impl Sync for nrl_algorithm {}

extern "C" {
    pub fn nrl_fail(status: nrl_status, format: *const c_char, ...) -> nrl_status;
    pub fn nrl_batch_count(batch: *const nrl_batch, what: *const c_char) -> f64;
    pub fn nrl_batch_column(ctx: *mut nrl_ctx, batch: *const nrl_batch, name: *const c_char, column: *mut *mut nrl_tensor) -> nrl_status;
    pub fn nrl_op_unary(ctx: *mut nrl_ctx, op: u32, x: *mut nrl_tensor, alpha: f64, beta: f64, y: *mut *mut nrl_tensor) -> nrl_status;
    pub fn nrl_op_binary(ctx: *mut nrl_ctx, op: u32, a: *mut nrl_tensor, b: *mut nrl_tensor, y: *mut *mut nrl_tensor) -> nrl_status;
    pub fn nrl_op_sum(ctx: *mut nrl_ctx, x: *mut nrl_tensor, y: *mut *mut nrl_tensor) -> nrl_status;
    pub fn nrl_metric_add(ctx: *mut nrl_ctx, index: u32, value: *mut nrl_tensor, weight: f64) -> nrl_status;
    pub fn nrl_metric_report_f64(row: *const nrl_metric, value: f64, weight: f64) -> nrl_status;
}

/// A NUL-terminated text of a literal.
#[macro_export]
macro_rules! text {
    ($text:expr) => { concat!($text, "\0").as_ptr() as *const std::os::raw::c_char };
}

/// Sets the error of this thread.
pub fn fail(status: nrl_status, text: &str) -> nrl_status {
    let text = CString::new(text.replace('\0', " ")).unwrap();
    unsafe { nrl_fail(status, text!("%s"), text.as_ptr()) }
}

/// Runs a member of a table: an error is a status and its text, and so is a panic.
pub fn guard<F: FnOnce() -> Result<(), (nrl_status, String)>>(body: F) -> nrl_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => NRL_OK,
        Ok(Err((status, text))) => fail(status, &text),
        Err(_) => fail(NRL_ERR_PLUGIN, "the plugin panicked"),
    }
}

/// The header of a table without a check; `options` and `metrics` may be null.
pub const fn header(kind: u32, size: usize, n_options: usize, options_size: usize, name: *const c_char,
                    version: *const c_char, summary: *const c_char, options: *const nrl_option) -> nrl_plugin {
    nrl_plugin {
        abi: NRL_ABI, build: NRL_BUILD, kind, size: size as u32, n_options: n_options as u32,
        option_size: std::mem::size_of::<nrl_option>() as u32, options_size: options_size as u32, priority: 0,
        name, version, summary, options, check: None, metrics: std::ptr::null(), reserved: [std::ptr::null(); 3],
    }
}

/// Exports a static table.
#[macro_export]
macro_rules! export {
    ($table:ident) => {
        #[no_mangle]
        pub extern "C" fn nrl_plugin_entry() -> *const $crate::nrl_plugin {
            unsafe { std::ptr::addr_of!($table.plugin) }
        }
    };
}

/// All structs, in lines as C prints them.
pub fn layouts() -> Vec<String> {
    let mut lines = Vec::new();
    nrl_option::layout(&mut lines);
    nrl_metric::layout(&mut lines);
    nrl_plugin::layout(&mut lines);
    nrl_value::layout(&mut lines);
    nrl_sample_text::layout(&mut lines);
    nrl_record::layout(&mut lines);
    nrl_logger_run::layout(&mut lines);
    nrl_run_event::layout(&mut lines);
    nrl_logger::layout(&mut lines);
    nrl_algorithm::layout(&mut lines);
    for (name, value) in [("NRL_KIND_ALGORITHM", NRL_KIND_ALGORITHM), ("NRL_KIND_LOGGER", NRL_KIND_LOGGER),
                          ("NRL_TYPE_INT", NRL_TYPE_INT), ("NRL_TYPE_F64", NRL_TYPE_F64),
                          ("NRL_TYPE_BOOL", NRL_TYPE_BOOL), ("NRL_TYPE_STR", NRL_TYPE_STR),
                          ("NRL_REDUCE_MEAN", NRL_REDUCE_MEAN), ("NRL_REDUCE_SUM", NRL_REDUCE_SUM),
                          ("NRL_REDUCE_MAX", NRL_REDUCE_MAX), ("NRL_REDUCE_MIN", NRL_REDUCE_MIN),
                          ("NRL_BETTER_SMALLER", NRL_BETTER_SMALLER), ("NRL_BETTER_LARGER", NRL_BETTER_LARGER),
                          ("NRL_RECORD_TRAIN", NRL_RECORD_TRAIN), ("NRL_RECORD_EVAL", NRL_RECORD_EVAL),
                          ("NRL_UNARY_NEG", NRL_UNARY_NEG), ("NRL_BINARY_MUL", NRL_BINARY_MUL),
                          ("NRL_ERR_PLUGIN", NRL_ERR_PLUGIN as u32), ("NRL_ERR_IO", NRL_ERR_IO as u32)] {
        lines.push(format!("{name} = {value}"));
    }
    lines
}
