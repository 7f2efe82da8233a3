//! A logger in Rust: the best and the last value of a run, in one line of OUT/tally.txt that every record rewrites.

use nrl::*;
use std::ffi::CStr;
use std::os::raw::{c_char, c_void};
use std::fs;
use std::path::PathBuf;

#[repr(C)]
struct Options {
    value: *const c_char,
}

struct Tally {
    path: PathBuf,
    value: String,
    best: f64,
    steps: i64,
}

struct Rows([nrl_option; 1]);
unsafe impl Sync for Rows {}
static ROWS: Rows = Rows([nrl_option {
    name: text!("value"), initial: text!("loss"), choices: std::ptr::null(), help: text!("which value is tallied"),
    min: 0.0, max: 0.0, offset: 0, r#type: NRL_TYPE_STR,
}]);

fn owned(text: *const c_char) -> String {
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

unsafe extern "C" fn open(options: *const c_void, run: *const nrl_logger_run, this: *mut *mut c_void) -> nrl_status {
    guard(|| {
        let (options, run) = (&*(options as *const Options), &*run);
        if let Some(claim) = run.claim {
            let status = claim(run.claim_user, text!("tally.txt"));
            if status != NRL_OK {
                return Err((status, "tally.txt belongs to the run".into()));
            }
        }
        let path = PathBuf::from(owned(run.out)).join("tally.txt");
        // A resumed run goes on with the best value so far.
        let text = if run.resumed_step > 0 { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        let best = text.split_whitespace().nth(1).and_then(|x| x.parse().ok()).unwrap_or(f64::INFINITY);
        *this = Box::into_raw(Box::new(Tally { path, value: owned(options.value), best, steps: 0 })) as *mut c_void;
        Ok(())
    })
}

unsafe extern "C" fn write(this: *mut c_void, record: *const nrl_record) -> nrl_status {
    guard(|| {
        let (this, record) = (&mut *(this as *mut Tally), &*record);
        for i in 0..record.n_values {
            let value = &*record.values.add(i);
            if value.name.is_null() || owned(value.name) != this.value {
                continue;
            }
            this.steps += 1;
            this.best = this.best.min(value.value);
            let line = format!("best {} last {} at step {}\n", this.best, value.value, record.step);
            fs::write(&this.path, line).map_err(|e| (NRL_ERR_IO, format!("{}: {e}", this.path.display())))?;
        }
        Ok(())
    })
}

unsafe extern "C" fn close(this: *mut c_void) {
    drop(Box::from_raw(this as *mut Tally));
}

static TABLE: nrl_logger = nrl_logger {
    plugin: header(NRL_KIND_LOGGER, std::mem::size_of::<nrl_logger>(), 1, std::mem::size_of::<Options>(),
                   text!("tally_rs"), text!("0.1"), text!("the best and the last value, written in Rust"),
                   &ROWS.0 as *const nrl_option),
    open: Some(open),
    write: Some(write),
    close: Some(close),
    event: None,
    on_terminal: false,
};
export!(TABLE);
